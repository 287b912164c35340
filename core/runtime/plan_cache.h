// Which of a vendor library's plans is the fastest for a problem: remembered in a file, once it is measured
// (core/timing/choose_plan.h).
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

}  // namespace sinter
