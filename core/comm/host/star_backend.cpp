// Collectives on CPU tensors over the connections that each rank has to rank 0 anyway: where Gloo is missing,
// for what GPUs agree on. Rank 0 has all the work, so it is slow for large tensors of many ranks.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

#include <sinter/core/comm/host/host_backend.h>

namespace sinter::comm {
namespace {

constexpr size_t kSegment = 1 << 20;  // bytes of a rank that are under way at a time

class StarBackend final : public HostBackend {
 public:
  explicit StarBackend(RankWatch& ranks) : HostBackend(ranks.rank(), ranks.size()), ranks_(ranks) {}

  void all_reduce(void* data, int64_t count, DType dtype, const Stream& /*stream*/) override {
    with_summed_type(dtype, [&]<class T>() {
      in_segments(static_cast<size_t>(count) * sizeof(T), [&](size_t at, size_t bytes) {
        char* const segment = static_cast<char*>(data) + at;
        const auto sum = [&](std::vector<std::string>& parts) {  // by rank: the same bits from run to run
          for (size_t rank = 1; rank < size_; ++rank)
            add<T>(parts[0].data(), parts[0].data(), parts[rank].data(), bytes / sizeof(T));
          return std::move(parts[0]);
        };
        std::memcpy(segment,
                    round(
                        {segment, bytes}, [&](int) { return bytes; }, sum, bytes)
                        .data(),
                    bytes);
      });
    });
  }

  void all_gather(const void* from, void* to, size_t bytes, const Stream& /*stream*/) override {
    in_segments(bytes, [&](size_t at, size_t size) {
      const auto join = [](const std::vector<std::string>& parts) {
        std::string all;
        for (const std::string& part : parts) all += part;
        return all;
      };
      const std::string all = round(
          {static_cast<const char*>(from) + at, size}, [&](int) { return size; }, join, size * size_);
      for (size_t rank = 0; rank < size_; ++rank)
        std::memcpy(static_cast<char*>(to) + bytes * rank + at, all.data() + size * rank, size);
    });
  }

  void broadcast(void* data, size_t bytes, int root, const Stream& /*stream*/) override {
    in_segments(bytes, [&](size_t at, size_t size) {
      char* const segment = static_cast<char*>(data) + at;
      const auto size_of_part = [&](int rank) { return rank == root ? size : 0; };
      const auto pick = [&](std::vector<std::string>& parts) {
        return std::move(parts[static_cast<size_t>(root)]);
      };
      std::memcpy(segment, round({segment, size_of_part(rank_)}, size_of_part, pick, size).data(), size);
    });
  }

  void abort(const std::string& text) noexcept override {
    try {
      const std::lock_guard lock(mutex_);
      if (text_.empty()) text_ = text;
    } catch (const std::exception&) {  // no memory for the text
    }
    ended_ = true;
    ranks_.wake_receivers();
  }

 private:
  template <class F>
  static void in_segments(size_t bytes, const F& f) {
    for (size_t at = 0; at < bytes; at += kSegment) f(at, std::min(kSegment, bytes - at));
  }

  /// Rank 0 combines the parts of all, of which each is as large as it must be, and all get the result. So
  /// nobody is more than one part ahead.
  template <class SizeOfPart, class Combine>
  std::string round(const std::string& own, const SizeOfPart& size_of_part, const Combine& combine,
                    size_t result_size) {
    const Work work(*this);
    if (rank_ != 0) {
      ranks_.send(0, own);
      return next(0, result_size);
    }
    std::vector<std::string> parts = {own};
    for (int rank = 1; rank < ranks_.size(); ++rank)
      parts.push_back(next(rank, static_cast<size_t>(size_of_part(rank))));
    std::string result = combine(parts);
    for (int rank = 1; rank < ranks_.size(); ++rank) ranks_.send(rank, result);
    return result;
  }

  std::string next(int rank, size_t bytes) {
    std::string data;
    try {
      data = ranks_.receive(rank, Clock::now() + kForEver, [this] { return ended_.load(); });
    } catch (const CommunicationError&) {
      const std::lock_guard lock(mutex_);
      if (ended_) throw CommunicationError(text_.empty() ? "[comm] the job has ended" : text_);
      throw;
    }
    if (data.size() == bytes) return data;
    throw_error<OwnError>("expected {} bytes of {} but got {}: the ranks' tensors or calls differ", bytes,
                          describe(ranks_.members(), rank), data.size());
  }

  RankWatch& ranks_;
  std::atomic<bool> ended_ = false;
  std::mutex mutex_;
  std::string text_;  // guarded by the mutex
};

}  // namespace

std::unique_ptr<CollectiveBackend> make_star_backend(RankWatch& ranks) {
  return std::make_unique<StarBackend>(ranks);
}

}  // namespace sinter::comm
