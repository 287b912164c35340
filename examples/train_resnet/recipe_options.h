// What a recipe may say beside the options that most runs need: the network's regularisation, the loss, the
// course of the learning rate, and when a run ends early.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/option_table.h"

namespace train_resnet {

struct NetworkOptions {
  double drop_path = 0.0;           // stochastic depth's probability at the last block
  bool zero_init_residual = false;  // blocks start as the identity
};

struct LossOptions {
  std::string kind = "cross-entropy";  // or bce
  double bce_threshold = 0.0;          // targets above it count as 1, others as 0; 0: they stay shares
  std::string class_weights;           // "balanced", a number for each class, or a file; empty: none

  bool is_binary() const { return kind == "bce"; }
};

struct CourseOptions {
  int64_t warmup_epochs = 0;      // 0: a share of the run
  std::string milestones;         // of multi-step: epochs in ascending order
  double gamma = 0.1;             // of multi-step and plateau: what a reduction multiplies the rate by
  int64_t plateau_patience = 10;  // of plateau: epochs
  int64_t patience = 0;           // epochs without a better test that end the run; 0: it goes on
};

void add_network_rows(sinter::examples::OptionTable& table, NetworkOptions& options);
void add_loss_rows(sinter::examples::OptionTable& table, LossOptions& options);
/// Beside --schedule and --warmup.
void add_course_rows(sinter::examples::OptionTable& table, CourseOptions& options);

/// None for a text that is no list of finite numbers >= 0.
std::optional<std::vector<double>> parse_numbers(std::string_view text);

/// The numbers of a list such as "30,60,80" or "1,0.5"; throws InvalidArgument with the option's name for
/// another text.
std::vector<double> numbers_of(const char* option, const std::string& text);

}  // namespace train_resnet
