// A GPU that has no device: its work waits for that of all ranks, as sums through NCCL do.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sinter/core/comm/collective_backend.h>

namespace sinter::testing {

class FakeGpu : public comm::CollectiveBackend {
 public:
  /// Ranks count their work in `file`, which all of them map.
  FakeGpu(int rank, int size, const std::string& file) : rank_(rank), size_(size) {
    const int opened = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (opened < 0 || ::ftruncate(opened, kBytes) != 0) throw Error("no file for the counts of ranks");
    counts_ = static_cast<int64_t*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0));
    ::close(opened);
    if (counts_ == MAP_FAILED) throw Error("no memory for the counts of ranks");
  }
  ~FakeGpu() override { munmap(counts_, kBytes); }

  void all_reduce(void*, int64_t, DType, const Stream&) override { fail_call(); }
  void reduce_scatter(const void*, void*, int64_t, DType, const Stream&) override { fail_call(); }
  void all_gather(const void*, void*, size_t, const Stream&) override { fail_call(); }
  void broadcast(void*, size_t, int, const Stream&) override { fail_call(); }
  void begin_all_reduce(const Communicator::Bucket&, const Stream&) override { fail_call(); }
  void end_all_reduce(const void*, const Stream&) override {}
  void abort(const std::string&) noexcept override { aborted_ = true; }

  void note_work() override { ++count_of(rank_); }
  Progress progress() override {
    if (aborted_) return {};
    Progress progress{count_of(rank_), count_of(rank_)};
    for (int rank = 0; rank < size_; ++rank)
      progress.ended = std::min<int64_t>(progress.ended, count_of(rank));
    return progress;
  }
  void check_work() override {
    if (is_broken_) throw CommunicationError("the network has broken");
    if (is_faulty_) throw comm::OwnError("the driver has failed");
  }

  /// As a stream is waited for: until all has ended, or was aborted.
  void synchronize() {
    while (!aborted_ && progress().ended < count_of(rank_))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  /// From now on work fails, for a reason that may be another rank's, or for one of its own.
  void break_network() { is_broken_ = true; }
  void break_driver() { is_faulty_ = true; }

 private:
  static constexpr size_t kBytes = 4096;

  [[noreturn]] static void fail_call() { throw comm::OwnError("the call was refused"); }
  std::atomic_ref<int64_t> count_of(int rank) const { return std::atomic_ref<int64_t>(counts_[rank]); }

  const int rank_, size_;
  int64_t* counts_ = nullptr;
  std::atomic<bool> aborted_ = false, is_broken_ = false, is_faulty_ = false;
};

}  // namespace sinter::testing
