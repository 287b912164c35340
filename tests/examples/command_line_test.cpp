// What all command lines share: numbers are decimal, near words are found, and --help has no line that is too
// long.
#include "run/command_line.h"

#include <cstdlib>
#include <limits>
#include <stdexcept>

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include <sinter/core/base/error.h>

#include "run/help.h"
#include "train_insightface/options.h"
#include "train_resnet/options.h"

namespace sinter::examples {
namespace {

struct Numbers {
  int64_t count = 0;
  uint64_t seed = 0;
  double rate = 0;
  std::optional<int64_t> maybe;
  std::vector<int64_t> several;
};

Numbers numbers_of(const std::vector<std::string>& words) {
  Numbers numbers;
  CLI::App app;
  app.add_option("--count", numbers.count)->check(whole(0, 1000));
  app.add_option("--seed", numbers.seed)->check(whole(0, UINT64_MAX));
  app.add_option("--rate", numbers.rate)->check(number(-1e300, 1e300));
  app.add_option("--maybe", numbers.maybe)->check(whole(0, 1000));
  app.add_option("--several", numbers.several)->check(whole(0, 1000));
  apply(app, words);
  return numbers;
}

TEST(CommandLine, NumbersAreDecimal) {
  EXPECT_EQ(numbers_of({"--count=010"}).count, 10);
  EXPECT_EQ(numbers_of({"--count=0009"}).count, 9);
  EXPECT_EQ(numbers_of({"--count=+7"}).count, 7);
  EXPECT_EQ(numbers_of({"--count=0"}).count, 0);
  EXPECT_EQ(numbers_of({"--count=000"}).count, 0);
  EXPECT_EQ(numbers_of({"--maybe=0100"}).maybe, 100);
  EXPECT_EQ(numbers_of({"--several", "010", "08"}).several, (std::vector<int64_t>{10, 8}));
  EXPECT_EQ(numbers_of({"--seed=018446744073709551615"}).seed, UINT64_MAX);
  EXPECT_EQ(numbers_of({"--rate=010"}).rate, 10.0);
  EXPECT_EQ(numbers_of({"--rate=010.5"}).rate, 10.5);
  EXPECT_EQ(numbers_of({"--rate=-.5e-3"}).rate, -.5e-3);
  EXPECT_EQ(numbers_of({"--rate=1e22"}).rate, 1e22);
  for (const double value : {0.1, 5e-4, 1.0 / 3, 2.2250738585072014e-308, 1.7976931348623157e299})
    EXPECT_EQ(numbers_of({fmt::format("--rate={}", value)}).rate, value);
}

TEST(CommandLine, OtherNotationsAreRefused) {
  for (const char* text :
       {"0x10", "0b11", "0o7", "1e2", "1.0", "", " 1", "1 ", "1_000", "1'000", "-1", "ten", "++1"}) {
    EXPECT_THROW(numbers_of({std::string("--count=") + text}), InvalidArgument) << text;
    EXPECT_THROW(numbers_of({std::string("--seed=") + text}), InvalidArgument) << text;
  }
  for (const char* text : {"0x10", "0x1p3", "", " 1", "1f", "1,5", "nan", "inf", "-inf", "1e999"})
    EXPECT_THROW(numbers_of({std::string("--rate=") + text}), InvalidArgument) << text;
}

TEST(CommandLine, ANumberThatNothingChecksIsAMistakeOfTheProgram) {
  int64_t value = 0;
  CLI::App app;
  app.add_option("--value", value);
  EXPECT_THROW(apply(app, {"--value=1"}), std::logic_error);
}

TEST(CommandLine, NumbersOfTheProgramsAreDecimalToo) {
  train_resnet::Options options;
  train_resnet::adopt({{"--epochs", "010"}, {"--batch", "0128"}, {"--lr", "00.5"}, {"--max-steps", "0100"}},
                      options);
  EXPECT_EQ(options.epochs, 10);
  EXPECT_EQ(options.batch, 128);
  EXPECT_EQ(options.lr, 0.5);
  EXPECT_EQ(options.max_steps, 100);
  train_insightface::Options faces;
  train_insightface::adopt({{"--epochs", "010"}, {"--dims", "0512"}, {"--lr", "01e-2"}}, faces);
  EXPECT_EQ(faces.epochs, 10);
  EXPECT_EQ(faces.dims, 512);
  EXPECT_EQ(faces.lr, 0.01);
}

TEST(CommandLine, NearWordsAreFound) {
  std::string text;
  CLI::App app;
  for (const char* option : {"--model", "--lr", "--epochs", "--checkpoints", "--checkpoint-every"})
    app.add_option(option, text);
  for (const auto& [word, option] : {std::pair("modle", "model"),
                                     {"omdel", "model"},
                                     {"rl", "lr"},
                                     {"epoch", "epochs"},
                                     {"ephocs", "epochs"},
                                     {"chekpoints", "checkpoints"},
                                     {"checkpiont-evrey", "checkpoint-every"}})
    EXPECT_EQ(nearest_option(app, word), option) << word;
  for (const char* word : {"xyzzy", "data", "x", ""}) EXPECT_EQ(nearest_option(app, word), "") << word;
}

TEST(CommandLine, AWordThatIsNoneOfSomeNamesTheNearest) {
  std::string model;
  CLI::App app;
  app.add_option("--model", model)->check(one_of({"resnet18", "resnet50"}));
  try {
    apply(app, {"--model=resnet81"});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "--model: expected one of resnet18, resnet50 but got 'resnet81'; did you mean 'resnet18'?");
  }
}

TEST(CommandLine, HelpShowsWhatMostRunsNeedFirst) {
  std::string data;
  int64_t steps = 0;
  bool flip = true;
  CLI::App app("Does something.", "program");
  app.option_defaults()->group(kSystemGroup);
  app.add_option("--steps", steps, "Stop after so many; 0: never")
      ->capture_default_str()
      ->check(whole(0, kMany));
  app.option_defaults()->group("Recipe");
  app.add_flag("--flip,!--no-flip", flip, "Mirror");
  app.add_option("--data", data,
                 "Where the data lie, in words that take more than one line of a terminal of eighty columns")
      ->check(folder());
  std::string kind = "one";
  app.add_option("--kind", kind, "Which")->capture_default_str()->check(one_of({"one", "two"}));
  set_help(app, {.first = {"--data"}, .examples = {"program --data photos"}, .notes = "Exit code: 0."});
  setenv("COLUMNS", "80", 1);
  EXPECT_EQ(app.help(), R"(Does something.

Usage: program [options]

  --data FOLDER           Where the data lie, in words that take more than one
                          line of a terminal of eighty columns

Examples:
  program --data photos

Recipe:
  --flip, --no-flip       Mirror
  --kind NAME             Which; one of one, two (default one)

System:
  --steps INT             Stop after so many; 0: never (default 0)
  -h, --help              Print this and exit

Exit code: 0.
)");
  unsetenv("COLUMNS");
}

}  // namespace
}  // namespace sinter::examples
