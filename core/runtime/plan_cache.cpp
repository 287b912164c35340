#include <atomic>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

#include <unistd.h>

#include <sinter/core/base/log.h>
#include <sinter/core/json/json.h>
#include <sinter/core/runtime/plan_cache.h>

namespace sinter {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr uint64_t kLargestFile = uint64_t{64}
                                  << 20;  // some hundred thousand plans: anything larger is not ours

/// `scope` as a file name: letters, digits, '.', '-' and '_'.
std::string file_name(const std::string& scope) {
  std::string name = "plans-";
  for (const char c : scope) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-';
    name += plain ? c : '_';
  }
  return name + ".json";
}

/// A name beside `file` that no other process and no other call uses.
std::filesystem::path temporary_path(const std::filesystem::path& file) {
  static std::atomic<uint64_t> next = 0;
  std::filesystem::path path = file;
  path.replace_filename(fmt::format(".{}.{}.{}.tmp", file.filename().string(), getpid(), next++));
  return path;
}

}  // namespace

std::optional<std::filesystem::path> cache_folder() {
  if (const char* folder = std::getenv("SINTER_CACHE_DIR")) {
    if (*folder == '\0') return std::nullopt;
    return std::filesystem::path(folder);
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return std::nullopt;
  return std::filesystem::path(home) / ".cache" / "sinter";
}

PlanCache::PlanCache(std::optional<std::filesystem::path> folder, std::string scope, FileSystem& files)
    : scope_(std::move(scope)), files_(files) {
  if (folder) file_ = *folder / file_name(scope_);
}

std::optional<TunedPlan> PlanCache::find(const std::string& problem) {
  const std::lock_guard lock(mutex_);
  read_once();
  const auto found = plans_.find(problem);
  if (found == plans_.end()) return std::nullopt;
  return found->second;
}

void PlanCache::store(const std::string& problem, const TunedPlan& plan) {
  const std::lock_guard lock(mutex_);
  read_once();
  plans_[problem] = plan;
  if (file_.empty()) return;
  plans_.merge(read());  // what others have added meanwhile; for problems known here, our own plan stays
  try {
    write();
  } catch (const std::exception& error) {
    log::warning("[plan_cache] the plans measured from now on stay in memory: {}", error.what());
    file_.clear();
  }
}

void PlanCache::read_once() {
  if (was_read_) return;
  was_read_ = true;
  if (!file_.empty()) plans_ = read();
}

PlanCache::Plans PlanCache::read() const {
  std::error_code ignored;
  if (!std::filesystem::exists(file_, ignored)) return {};
  try {
    InputFile input(file_, files_);
    if (input.size() > kLargestFile) throw_error<IoError>("{} bytes are too many", input.size());
    std::string text(input.size(), '\0');
    input.read(0, std::as_writable_bytes(std::span(text)));
    const Json json = parse_json(text);
    if (json.at("format").get<int>() != kFormat) throw_error<IoError>("the format is not {}", kFormat);
    if (json.at("scope").get<std::string>() != scope_) throw_error<IoError>("it is not for {}", scope_);
    Plans plans;
    for (const auto& [problem, plan] : json.at("plans").items()) {
      TunedPlan& tuned = plans[problem];
      tuned = {plan.at("plan").get<std::string>(), plan.at("us").get<double>()};
      if (!plan.contains("others")) continue;
      for (const auto& [name, time] : plan.at("others").items())
        tuned.others.emplace_back(name, time.get<double>());
    }
    return plans;
  } catch (const std::exception& error) {
    log::warning("[plan_cache] {} is ignored: {}", file_.string(), error.what());
    return {};
  }
}

void PlanCache::write() const {
  Json plans = Json::object();
  for (const auto& [problem, plan] : plans_) {
    Json& written = plans[problem] = {{"plan", plan.name}, {"us", plan.microseconds}};
    for (const auto& [name, time] : plan.others) written["others"][name] = time;
  }
  const Json json = {{"format", kFormat}, {"scope", scope_}, {"plans", std::move(plans)}};

  std::error_code ignored;  // a folder that is missing afterwards fails at the open, with its path
  std::filesystem::create_directories(file_.parent_path(), ignored);
  const std::filesystem::path temporary = temporary_path(file_);
  OutputFile output(temporary, files_);
  output.write(json.dump(1));
  output.sync_and_close();
  const int renamed = files_.rename(temporary, file_);
  if (renamed < 0) files_.remove(temporary);
  check_file_call(renamed, "rename the finished file to its name", file_);
}

namespace {

thread_local bool only_known_plans = false;

}  // namespace

OnlyKnownPlans::OnlyKnownPlans() : outer_(std::exchange(only_known_plans, true)) {}

OnlyKnownPlans::~OnlyKnownPlans() {
  only_known_plans = outer_;
}

bool OnlyKnownPlans::wanted() {
  return only_known_plans;
}

}  // namespace sinter
