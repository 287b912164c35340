// Recipes as files: what train_resnet and train_insightface take from them, and what they refuse.
#include "recipe/recipe_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sinter/core/base/error.h>

#include "common/project_folder.h"
#include "common/temporary_folder.h"
#include "recipe/recipe.h"
#include "run/output_files.h"
#include "train_insightface/options.h"
#include "train_resnet/options.h"

namespace {

namespace fs = std::filesystem;
using sinter::examples::kRecipeGroup;
using sinter::examples::read_recipe_file;
using sinter::examples::Recipe;
using sinter::testing::TemporaryFolder;

template <class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const sinter::Error& error) {
    return error.what();
  }
  return "no error";
}

std::string write(const TemporaryFolder& folder, const std::string& text) {
  const std::string path = (folder.path() / "recipe.json").string();
  std::ofstream(path) << text;
  return path;
}

template <class Options, class Parse>
std::optional<int> parse(const Parse& parse_options, std::vector<std::string> words, Options& options) {
  words.insert(words.begin(), "trainer");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return parse_options(static_cast<int>(argv.size()), argv.data(), options);
}

train_resnet::Options resnet_options(const std::vector<std::string>& words) {
  train_resnet::Options options;
  EXPECT_EQ(parse(train_resnet::parse_options, words, options), std::nullopt);
  return options;
}

/// A command line with an option of each kind.
struct Line {
  double lr = 0.0;
  int64_t count = 0;
  bool flip = false;
  std::string name, folder;
  CLI::App app;

  Line() {
    app.option_defaults()->group(kRecipeGroup);
    app.add_option("--lr", lr);
    app.add_option("--count", count);
    app.add_flag("--flip,!--no-flip", flip);
    app.add_option("--name", name);
    app.option_defaults()->group("Options");
    app.add_option("--folder", folder);
  }
};

TEST(RecipeFile, GivesTheWordsOfTheCommandLine) {
  const TemporaryFolder folder;
  const Line line;
  const std::string path =
      write(folder, R"({"lr": 5e-4, "count": 18446744073709551615, "flip": false, "name": "a \"b\""})");
  EXPECT_EQ(read_recipe_file(path, line.app), (Recipe{{"--lr", "0.0005"},
                                                      {"--count", "18446744073709551615"},
                                                      {"--flip", "false"},
                                                      {"--name", "a \"b\""}}));
  EXPECT_TRUE(read_recipe_file(write(folder, "{}"), line.app).empty());
}

TEST(RecipeFile, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  const Line line;
  const Recipe recipe = {
      {"--lr", "0.1234567890123"}, {"--count", "30"}, {"--flip", "true"}, {"--name", "resnet18"}};
  const std::string path = (folder.path() / "written.json").string();
  sinter::examples::write_recipe_file(path, recipe);
  EXPECT_EQ(read_recipe_file(path, line.app), recipe);
}

TEST(PathsOfACheckpoint, ComeBackByteForByte) {
  using sinter::examples::read_paths;
  using sinter::examples::write_paths;
  for (const std::vector<std::string>& paths : std::vector<std::vector<std::string>>{
           {"/a/b", "/c d\\e"}, {"/caf\xe9", "/plain"}, {"/a\nb", "/c\\n"}, {"/\x1b[2J"}, {}}) {
    sinter::nn::CheckpointData data;
    write_paths("verify", paths, data);
    EXPECT_EQ(read_paths("verify", data), paths);
    EXPECT_TRUE(read_paths("data", data).empty());
  }
  sinter::nn::CheckpointData first;  // as first versions wrote it
  first.values["data"] = std::string("/a\\nb\n/c");
  EXPECT_EQ(read_paths("data", first), (std::vector<std::string>{"/a\\nb", "/c"}));
}

TEST(JsonText, EscapesNamesThatAreNoUtf8) {
  EXPECT_EQ(sinter::examples::to_json_text({{"a", {"caf\xe9", "x\\y", 3}}}),
            "{\n  \"a\": [\n    \"caf\\\\xe9\",\n    \"x\\\\y\",\n    3\n  ]\n}\n");
}

TEST(RecipeFile, MistakesAreToldWithFileAndKey) {
  const TemporaryFolder folder;
  const Line line;
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {R"({"ll": 1})", "there is no option 'll'; did you mean 'lr'?"},
      {R"({"xyzzyx": 1})", "there is no option 'xyzzyx'"},
      {R"({"--lr": 1})", "there is no option '--lr'"},
      {R"({"": 1})", "there is no option ''"},
      {R"({"no-flip": true})", "there is no option 'no-flip'"},
      {R"({"folder": "x"})", "'folder' is no part of a recipe; it belongs on the command line"},
      {R"({"flip": 1})", "flip: expected true or false but got 1"},
      {R"({"flip": "true"})", "flip: expected true or false but got \"true\""},
      {R"({"lr": true})", "lr: expected a number or a text but got true"},
      {R"({"lr": null})", "lr: expected a number or a text but got null"},
      {R"({"lr": [1]})", "lr: expected a number or a text but got array"},
      {R"({"lr": {"lr": 1}})", "lr: expected a number or a text but got object"},
      {R"({"lr": 1, "lr": 2})", "the key 'lr' stands there twice"},
      {R"([1])", "expected an object"},
      {R"(3)", "expected an object"},
      {R"({"lr": 1)", "parse error at line 1"},
      {R"({"lr": 1} x)", "parse error at line 1"},
      {"", "parse error at line 1"},
      {"{\"lr\": \"\xff\"}", "parse error at line 1"},
      {std::string(200'000, '['), "nested deeper than 32 levels"},
      {"{\"lr\": " + std::string(80'000, '[') + std::string(80'000, ']') + "}",
       "nested deeper than 32 levels"},
      {std::string(2'000'000, ' '), "expected a small JSON file but it has 2000000 bytes"},
  };
  for (const auto& [text, expected] : mistakes) {
    const std::string path = write(folder, text);
    const std::string message = message_of([&] { read_recipe_file(path, line.app); });
    EXPECT_TRUE(message.starts_with("--recipe " + path + ": ")) << message.substr(0, 300);
    EXPECT_NE(message.find(expected), std::string::npos) << message.substr(0, 300);
  }
  EXPECT_NE(message_of([&] { read_recipe_file("/nowhere.json", line.app); }).find("No such file"),
            std::string::npos);
  EXPECT_NE(message_of([&] { read_recipe_file(folder.path().string(), line.app); }).find("directory"),
            std::string::npos);
}

TEST(RecipeFile, TheCommandLineGoesBeforeIt) {
  const TemporaryFolder folder;
  const std::string path = write(folder, R"({"lr": 0.05, "epochs": 3, "nesterov": false, "seed": 7})");
  const auto options = resnet_options({"--recipe", path, "--epochs", "9"});
  EXPECT_EQ(options.lr, 0.05);
  EXPECT_EQ(options.epochs, 9);
  EXPECT_EQ(options.nesterov, false);
  EXPECT_EQ(options.seed, 7u);
  // What the file says counts as given, so that a checkpoint with other values is noticed.
  EXPECT_TRUE(options.is_given("--lr") && options.is_given("--epochs") && !options.is_given("--batch"));
}

TEST(RecipeFile, AnotherOptimiserDropsWhatIsOfTheFiles) {
  const TemporaryFolder folder;
  const std::string path = write(folder, R"({"optimizer": "sgd", "lr": 0.05, "momentum": 0.8, "clip": 2})");
  const auto options = resnet_options({"--recipe", path, "--optimizer", "lamb"});
  EXPECT_EQ(options.optimizer, "lamb");
  EXPECT_FALSE(options.lr);
  EXPECT_FALSE(options.is_given("--momentum"));
  EXPECT_EQ(options.clip, 2.0);
}

TEST(RecipeFile, ValuesAreCheckedAsThoseOfTheCommandLine) {
  const TemporaryFolder folder;
  for (const char* text :
       {R"({"lr": "fast"})", R"({"lr": -1})", R"({"epochs": 2.5})", R"({"optimizer": "sgdm"})",
        R"({"optimizer": "adamw", "momentum": 0.9})", R"({"checkpoints": "x"})"}) {
    train_resnet::Options options;
    EXPECT_EQ(parse(train_resnet::parse_options, {"--recipe", write(folder, text)}, options), 2) << text;
  }
  train_insightface::Options options;
  EXPECT_EQ(parse(train_insightface::parse_options,
                  {"--synthetic", "20", "--recipe", write(folder, R"({"margin": "soft"})")}, options),
            2);
}

TEST(RecipeFile, TheShippedOnesAreSound) {
  const fs::path recipes = sinter::test::project_folder() / "examples/recipes";
  const auto cifar = resnet_options({"--recipe", (recipes / "cifar10_resnet18.json").string()});
  EXPECT_EQ(cifar.model, "resnet18");
  EXPECT_EQ(cifar.lr, 0.4);
  const auto imagenet = resnet_options({"--recipe", (recipes / "imagenet_resnet50_90.json").string()});
  EXPECT_EQ(imagenet.epochs, 90);
  EXPECT_EQ(imagenet.schedule, "step");
  const auto faces = [&](const fs::path& file) {
    train_insightface::Options options;
    EXPECT_EQ(
        parse(train_insightface::parse_options, {"--synthetic", "20", "--recipe", file.string()}, options),
        std::nullopt)
        << file;
    return options;
  };
  EXPECT_EQ(faces(recipes / "faces_iresnet50_arcface.json").backbone, "iresnet50");
  const train_insightface::Options large = faces(recipes / "faces_wf42m_iresnet50.json");
  EXPECT_EQ(large.sample_rate, 0.2);
  EXPECT_EQ(large.lr, 0.4);
  EXPECT_EQ(*large.warmup * static_cast<double>(*large.epochs), 2.0);
  EXPECT_EQ(faces(recipes / "faces_ms1mv3_mobile_face_net.json").backbone, "mbf");
  for (const auto& entry : fs::directory_iterator(recipes)) {
    const fs::path& file = entry.path();
    if (file.extension() != ".json") continue;
    if (file.filename().string().starts_with("faces_")) {
      EXPECT_EQ(faces(file).epochs, file.stem() == "faces_ms1mv3_mobile_face_net" ? 40 : 20) << file;
    } else {
      EXPECT_GT(resnet_options({"--recipe", file.string()}).epochs, 0) << file;
    }
  }
}

}  // namespace
