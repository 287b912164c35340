// What was chosen among an op's kernels for each problem: measured at the first call, remembered in memory
// and on the disk, handed from rank 0 to the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <sinter/core/op/dispatch.h>
#include <sinter/core/runtime/plan_cache.h>
#include <sinter/core/runtime/plan_store.h>
#include <sinter/core/timing/work_timer.h>

namespace sinter {

/// All members are safe to call from several threads.
class KernelTuner {
 public:
  using MakeTimer = std::function<std::unique_ptr<WorkTimer>(Device)>;

  static constexpr size_t kLeastTraffic = size_t{1} << 20;  // bytes of inputs and outputs: less is not timed
  static constexpr size_t kMostTimed = 4;                   // kernels of a problem
  static constexpr double kHopeless = 2.5;  // times the least estimate: such kernels are not timed
  static constexpr double kMargin = 0.04;   // the estimate's favourite stays unless another is so much faster
  static constexpr size_t kMostProblems = 512;  // that are timed in a process

  /// Without a folder nothing goes to the disk.
  explicit KernelTuner(std::optional<std::filesystem::path> folder = cache_folder(),
                       MakeTimer make_timer = make_work_timer)
      : folder_(std::move(folder)), make_timer_(std::move(make_timer)) {}
  /// The process's tuner.
  static KernelTuner& instance();

  /// See choose_by_time().
  KernelChoice choose(const Op& op, Device device, const KernelQuery& query);

  /// What was measured for a problem, in this process or by one that left its file; nothing if it was not.
  std::optional<TunedPlan> measured(const Op& op, Device device, const KernelQuery& query);

  /// What was chosen for good for problems of kLeastTraffic and more, a line each. Device indices are left
  /// out: ranks have GPUs of their own.
  std::string choices() const;
  /// Takes over what another process chose, before what was found here or lies on the disk.
  void follow(const std::string& choices);

 private:
  /// A problem with all that decides which kernel it gets.
  struct Key {
    Key(const Op& asked, Device device, const KernelQuery& query, uint64_t generation);
    bool operator==(const Key&) const = default;

    const Op* op;
    Attributes attributes;
    std::vector<uint64_t> words;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  struct Found {
    KernelChoice choice;
    bool settled = true;  // else it is what the moment allowed
  };

  Found search(const std::string& problem, Device device, const KernelQuery& query,
               std::vector<KernelCandidate> candidates);
  PlanCache& cache_of(Device device);

  std::optional<std::filesystem::path> folder_;
  MakeTimer make_timer_;
  PlanStore<Key, KernelChoice, Hash> store_;
  std::atomic<uint64_t> generation_ = 0;  // of what was told: older choices are not found
  mutable std::mutex mutex_;  // one search at a time: they would disturb each other's times. Guards:
  std::map<Device, std::unique_ptr<PlanCache>> caches_;
  std::map<std::string, std::string> told_, chosen_;  // names of kernels by problem
  size_t timed_ = 0;
};

}  // namespace sinter
