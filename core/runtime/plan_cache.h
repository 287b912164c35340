// Which of a vendor library's plans is the fastest for a problem: measured once, then remembered in a file.
// Knows no library and no device; they stand behind PlanCandidates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/file_system/file_system.h>

namespace sinter {

/// Where Sinter keeps what it measured: $SINTER_CACHE_DIR, else ~/.cache/sinter. Nothing if that variable is
/// set to an empty text, or if there is no home.
std::optional<std::filesystem::path> cache_folder();

/// A plan that won, by the library's name for it, and the time of one run.
struct TunedPlan {
  std::string name;
  double microseconds = 0;
  /// Those that it was measured against, with their times, in the order in which they were measured: for
  /// reports. Files of earlier versions have none.
  std::vector<std::pair<std::string, double>> others = {};

  bool operator==(const TunedPlan&) const = default;
};

/// Plans by problem, for one library on one kind of device, in memory and in a JSON file. Several processes
/// may share the file: each write replaces it whole and keeps what others have added. A file that cannot be
/// used is ignored and one that cannot be written is done without; both are logged as a warning. All members
/// are safe to call from several threads.
class PlanCache {
 public:
  /// `scope` names device and library with their versions; without a folder nothing goes to the disk.
  PlanCache(std::optional<std::filesystem::path> folder, std::string scope,
            FileSystem& files = FileSystem::native());

  std::optional<TunedPlan> find(const std::string& problem);
  void store(const std::string& problem, const TunedPlan& plan);

  /// The file, whether or not it exists; empty without a folder.
  const std::filesystem::path& file() const { return file_; }

 private:
  using Plans = std::map<std::string, TunedPlan>;

  void read_once();
  Plans read() const;
  void write() const;

  std::filesystem::path file_;
  std::string scope_;
  FileSystem& files_;
  std::mutex mutex_;
  bool was_read_ = false;
  Plans plans_;
};

/// A library's plans for one problem, in its own order of preference.
class PlanCandidates {
 public:
  virtual ~PlanCandidates() = default;

  virtual size_t count() const = 0;
  /// The same plan has the same name in every process.
  virtual std::string name(size_t i) const = 0;
  /// Makes plan i ready to run; false if the library or a limit turns it down. Called at most once for each
  /// i.
  virtual bool build(size_t i) = 0;
  /// Called once before the first time(); false if plans cannot be timed at present.
  virtual bool prepare_timing() = 0;
  /// Microseconds of one run of plan i, which is built; nothing if it failed. Throws OutOfMemory if there is
  /// no room for its scratch at present. May be called again after a failure.
  virtual std::optional<double> time(size_t i) = 0;
};

/// Whether candidates are timed; kNotNow where they would be at another moment.
enum class Timing : uint8_t { kNever, kNotNow, kNow };

/// What choose_plan found.
struct PlanChoice {
  std::optional<size_t> plan;  ///< a candidate, built; nothing if there is none that works
  /// False if the moment decided: timing was impossible, memory was short, or nothing worked. Asked again
  /// later, the answer may be a better one.
  bool settled = true;

  bool operator==(const PlanChoice&) const = default;
};

/// The candidate that `cache` remembers, built; nothing if it remembers none or the library has it no more.
std::optional<size_t> build_known_plan(PlanCache& cache, const std::string& problem,
                                       PlanCandidates& candidates);

/// As long as one lives, kernels that prepare themselves on this thread look for plans that are remembered
/// and do not search: one that has none then says that it cannot run. So many threads can make ready at once
/// what needs no measuring.
class OnlyKnownPlans {
 public:
  OnlyKnownPlans();
  ~OnlyKnownPlans();
  OnlyKnownPlans(const OnlyKnownPlans&) = delete;
  OnlyKnownPlans& operator=(const OnlyKnownPlans&) = delete;

  /// Whether one lives on this thread.
  static bool wanted();

 private:
  bool outer_;
};

/// The candidate to use: the one that `cache` remembers; else, under Timing::kNow and if timing is possible,
/// the fastest of the first `most_measured` that can be built, which the cache then remembers; else the first
/// that can be built. The first of all stays unless another takes less than 1 - `margin` of its time. A plan
/// that fails is tried once more behind all others. Plans for which memory is short are passed over, and then
/// nothing is remembered; if it is short for all of them, it is the first.
PlanChoice choose_plan(PlanCache& cache, const std::string& problem, PlanCandidates& candidates,
                       Timing timing, size_t most_measured, double margin = 0.0);

}  // namespace sinter
