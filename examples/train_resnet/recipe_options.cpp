#include "recipe_options.h"

#include <filesystem>
#include <string>

#include <fmt/core.h>

#include "run/command_line.h"
#include "trainer/step_options.h"

namespace train_resnet {
namespace {

namespace examples = sinter::examples;
using examples::number;
using examples::one_of;
using examples::OptionTable;

examples::Check class_weights() {
  return {[](const std::string& text) {
            std::error_code ignored;
            const bool known = text == "balanced" || text == "none" || examples::parse_numbers(text) ||
                               std::filesystem::is_regular_file(text, ignored);
            return known ? std::string()
                         : fmt::format(
                               "expected balanced, none, numbers from 0 on as in 1,0.5,2, or the name of "
                               "a file but got '{}'",
                               text);
          },
          "WEIGHTS"};
}

}  // namespace

void add_network_rows(OptionTable& table, NetworkOptions& options) {
  table
      .add("--drop-path", options.drop_path, number(0, 0.99),
           "Stochastic depth: the probability with which the last block drops its branch for an image; those "
           "before it do so less often, the first never")
      .kept_unless("0");
  table
      .add("--zero-init-residual", options.zero_init_residual,
           "Start blocks as the identity: the last norm of each begins at 0")
      .kept_unless("false");
}

void add_loss_rows(OptionTable& table, LossOptions& options) {
  table
      .add("--loss", options.kind, one_of({"cross-entropy", "bce"}),
           "What is made small: cross-entropy, or binary cross-entropy of each class by itself")
      .kept_unless("cross-entropy");
  table
      .add("--bce-threshold", options.bce_threshold, number(0, 1),
           "Under --loss bce, targets above this count as 1 and others as 0; 0: mixed and smoothed targets "
           "stay as they are")
      .kept_unless("0");
  table.add(
      "--class-weights", options.class_weights,
      [&options](const std::string& text) { options.class_weights = text == "none" ? "" : text; },
      class_weights(),
      "Weights of classes in the loss of training: balanced, by how few images they have; a number for each "
      "class, as in 1,0.5,2; a file with a line for each, as in cat,0.5; none");
}

}  // namespace train_resnet
