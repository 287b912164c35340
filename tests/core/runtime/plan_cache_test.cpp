// Measured plans on disk: what is kept, shared and refused.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/log.h>
#include <sinter/core/runtime/plan_cache.h>

namespace sinter {
namespace {

namespace fs = std::filesystem;

const TunedPlan kPlan{
    .name = "engine 3: 1=2", .microseconds = 12.5, .others = {{"engine 7:", 13.5}, {"engine 4:", 14}}};

/// A folder of its own, and the warnings that were logged.
class PlanCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / ("sinter_plan_cache_" + std::string(test->name()));
    fs::remove_all(folder_);
    log::set_sink([this](log::Level level, std::string_view message) {
      if (level == log::Level::kWarning) warnings_.emplace_back(message);
    });
  }
  void TearDown() override {
    log::set_sink({});
    fs::remove_all(folder_);
  }

  PlanCache make(const std::string& scope = "NVIDIA H200 cudnn 91900") { return PlanCache(folder_, scope); }
  static void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  fs::path folder_;
  std::vector<std::string> warnings_;
};

TEST_F(PlanCacheTest, RemembersAcrossObjects) {
  make().store("conv a", kPlan);
  EXPECT_EQ(make().find("conv a"), kPlan);
  EXPECT_EQ(make().find("conv b"), std::nullopt);
  EXPECT_EQ(make("other GPU cudnn 91900").find("conv a"), std::nullopt);
  EXPECT_EQ(make().file().filename(), "plans-NVIDIA_H200_cudnn_91900.json");
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(PlanCacheTest, LeavesOneFileBehind) {
  make().store("conv a", kPlan);
  make().store("conv b", kPlan);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path(), make().file());
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST_F(PlanCacheTest, KeepsWhatOthersAdded) {
  PlanCache first = make(), second = make();
  EXPECT_EQ(first.find("conv a"), std::nullopt);  // both have read by now
  EXPECT_EQ(second.find("conv b"), std::nullopt);
  first.store("conv a", kPlan);
  const TunedPlan other{.name = "engine 4:", .microseconds = 1};
  second.store("conv b", other);
  PlanCache third = make();
  EXPECT_EQ(third.find("conv a"), kPlan);
  EXPECT_EQ(third.find("conv b"), other);
}

TEST_F(PlanCacheTest, TheNewestResultForAProblemStays) {
  make().store("conv a", kPlan);
  const TunedPlan better{.name = "engine 9:", .microseconds = 2};
  make().store("conv a", better);
  EXPECT_EQ(make().find("conv a"), better);
}

TEST_F(PlanCacheTest, IgnoresAndReplacesFilesThatCannotBeUsed) {
  const std::string scope = "NVIDIA H200 cudnn 91900";
  const std::vector<std::string> bad = {
      "",
      "{\"format\": 1, \"sco",
      "[1, 2]",
      "{\"format\": 1, \"plans\": " + std::string(80'000, '[') + std::string(80'000, ']') + "}",
      R"({"format": 2, "scope": ")" + scope + R"(", "plans": {}})",
      R"({"format": 1, "scope": "some other GPU", "plans": {"conv a": {"plan": "engine 3:", "us": 1}}})",
      R"({"format": 1, "scope": ")" + scope + R"(", "plans": {"conv a": {"plan": 3, "us": 1}}})",
      R"({"format": 1, "scope": ")" + scope + R"(", "plans": {"conv a": {"us": 1}}})",
  };
  for (const std::string& text : bad) {
    SCOPED_TRACE(text);
    write(make().file(), text);
    warnings_.clear();
    PlanCache cache = make();
    EXPECT_EQ(cache.find("conv a"), std::nullopt);
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_NE(warnings_[0].find(cache.file().string()), std::string::npos) << warnings_[0];
    cache.store("conv a", kPlan);
    EXPECT_EQ(make().find("conv a"), kPlan);
  }
}

TEST_F(PlanCacheTest, WorksInMemoryWhereNothingCanBeWritten) {
  write(folder_, "a file where the folder should be");
  PlanCache cache = make();
  cache.store("conv a", kPlan);
  EXPECT_EQ(warnings_.size(), 1u);
  cache.store("conv b", kPlan);
  EXPECT_EQ(warnings_.size(), 1u) << "the second write must not be tried";
  EXPECT_EQ(cache.find("conv a"), kPlan);
  EXPECT_EQ(cache.find("conv b"), kPlan);
}

TEST_F(PlanCacheTest, NeedsNoFolder) {
  PlanCache cache(std::nullopt, "gpu");
  cache.store("conv a", kPlan);
  EXPECT_EQ(cache.find("conv a"), kPlan);
  EXPECT_TRUE(cache.file().empty());
  EXPECT_TRUE(warnings_.empty());
}

/// Sets an environment variable, or unsets it, until the end.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* present = std::getenv(name)) previous_ = present;
    set(value);
  }
  ~Environment() { set(previous_ ? previous_->c_str() : nullptr); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const char* value) const {
    if (value == nullptr) {
      unsetenv(name_);
    } else {
      setenv(name_, value, 1);
    }
  }

  const char* name_;
  std::optional<std::string> previous_;
};

TEST(CacheFolder, ComesFromTheEnvironment) {
  const Environment home("HOME", "/home/somebody");
  {
    const Environment folder("SINTER_CACHE_DIR", "/var/cache/plans");
    EXPECT_EQ(cache_folder(), fs::path("/var/cache/plans"));
  }
  {
    const Environment folder("SINTER_CACHE_DIR", "");
    EXPECT_EQ(cache_folder(), std::nullopt);
  }
  const Environment folder("SINTER_CACHE_DIR", nullptr);
  EXPECT_EQ(cache_folder(), fs::path("/home/somebody/.cache/sinter"));
  const Environment homeless("HOME", nullptr);
  EXPECT_EQ(cache_folder(), std::nullopt);
}

TEST(OnlyKnownPlans, AreWantedOnTheThreadThatSaysSo) {
  EXPECT_FALSE(OnlyKnownPlans::wanted());
  {
    const OnlyKnownPlans outer;
    { const OnlyKnownPlans inner; }
    EXPECT_TRUE(OnlyKnownPlans::wanted());
    std::thread([] { EXPECT_FALSE(OnlyKnownPlans::wanted()); }).join();
  }
  EXPECT_FALSE(OnlyKnownPlans::wanted());
}

}  // namespace
}  // namespace sinter
