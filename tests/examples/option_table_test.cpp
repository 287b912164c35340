// The table of options: what a command line, --help and a recipe have of a row.
#include "trainer/option_table.h"

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include <sinter/core/base/error.h>

#include "recipe/recipe_file.h"
#include "run/command_line.h"

namespace sinter::examples {
namespace {

struct Values {
  double rate = 0.1;
  int64_t count = 0;
  std::optional<bool> flip;
  std::optional<double> decay;
  double beta = 0.9;
  std::vector<int64_t> pair;
  std::string folder, optimizer = "sgd";
};

OptionTable table_of(Values& values) {
  OptionTable table;
  table.group(kRecipeGroup);
  table.add("--optimizer", values.optimizer, one_of({"sgd", "adamw"}), "Which");
  table.add("--rate", values.rate, number(0, 1), "Rate").of_optimizers({"sgd", "adamw"});
  table.add("--count", values.count, whole(0, 9), "Count").kept_unless("0");
  table.add("--flip,!--no-flip", values.flip, "Flip");
  table.add("--decay", values.decay, number(0, 1), "Decay").of_optimizers({"sgd", "adamw"});
  table.add("--beta", values.beta, number(0, 1), "Beta").of_optimizers({"adamw"});
  table.add(
      "--pair", values.pair,
      [&values](const std::string&) {
        values.pair = {1, 2};
      },
      one_of({"both"}), "Pair");
  table.add("--data", values.folder, folder(), "Data").not_kept();
  table.group("Files");
  table.add("--first", values.folder, folder(), "First").needs("--data");
  table.group(kRecipeGroup);
  table.add("--late", values.count, whole(0, 9), "Late").without_default().not_kept().behind("--rate");
  return table;
}

TEST(OptionTable, ARecipeKeepsWhatTheRowsSay) {
  Values values;
  EXPECT_EQ(table_of(values).recipe("sgd"), (Recipe{{"--optimizer", "sgd"}, {"--rate", "0.1"}}));
  values = {.rate = 0.25, .count = 3, .flip = false, .decay = 0.5, .pair = {1, 2}, .folder = "x"};
  const Recipe all = {{"--optimizer", "sgd"}, {"--rate", "0.25"}, {"--count", "3"},
                      {"--flip", "false"},    {"--decay", "0.5"}, {"--pair", "1,2"}};
  EXPECT_EQ(table_of(values).recipe("sgd"), all);
  EXPECT_EQ(table_of(values).recipe("adamw").at("--beta"), "0.9");
}

TEST(OptionTable, AdoptsARecipeButForWhatIsPassedOver) {
  Values values;
  const Recipe recipe = {{"--rate", "0.5"}, {"--flip", "true"}, {"--count", "07"}};
  const auto taken = table_of(values).adopt(recipe, [](const std::string& flag) { return flag == "--rate"; });
  EXPECT_EQ(taken, (std::set<std::string>{"--flip", "--count"}));
  EXPECT_EQ(values.rate, 0.1);
  EXPECT_EQ(values.count, 7);
  EXPECT_EQ(values.flip, true);
  const auto none = [](const std::string&) { return false; };
  EXPECT_THROW(table_of(values).adopt({{"--rate", "2"}}, none), InvalidArgument);
  EXPECT_THROW(table_of(values).adopt({{"--xyzzy", "2"}}, none), InvalidArgument);
}

TEST(OptionTable, TellsWhatIsOfAnotherOptimiser) {
  Values values;
  const OptionTable table = table_of(values);
  EXPECT_EQ(table.misplaced("sgd", {"--beta"}), "--beta is of --optimizer adamw");
  EXPECT_EQ(table.misplaced("adamw", {"--beta", "--rate"}), "");
  EXPECT_TRUE(table.is_of_optimizers("--rate"));
  EXPECT_FALSE(table.is_of_optimizers("--count"));
  EXPECT_FALSE(table.is_of_optimizers("--xyzzy"));
}

TEST(OptionTable, HelpHasTheRowsInTheirPlaces) {
  Values values;
  const OptionTable table = table_of(values);
  CLI::App app;
  table.attach(app);
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) names.push_back(option->get_name());
  const std::vector<std::string> expected = {"--help",  "--optimizer", "--rate",  "--late",
                                             "--count", "--flip",      "--decay", "--beta",
                                             "--pair",  "--data",      "--first"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(app.get_option("--rate")->get_default_str(), "0.1");
  EXPECT_EQ(app.get_option("--late")->get_default_str(), "");
  EXPECT_EQ(app.get_option("--decay")->get_default_str(), "");
  EXPECT_EQ(app.get_option("--count")->get_description(), "Count");
  EXPECT_EQ(app.get_option("--first")->get_group(), "Files");
  EXPECT_THROW(apply(app, {"--first=x"}), InvalidArgument) << "needs --data";
}

}  // namespace
}  // namespace sinter::examples
