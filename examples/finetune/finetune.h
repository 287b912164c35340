// What a trainer's options say about weights that were trained before: which parts of the network learn,
// when, and how fast.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sinter/nn/module/module.h>
#include <sinter/nn/optim/parameter_groups.h>

#include "trainer/option_table.h"

namespace sinter::examples {

/// Nothing of it by default.
struct FinetuneOptions {
  bool new_head = false;               ///< the classifier begins afresh
  std::optional<double> head_lr = {};  ///< its largest learning rate; none: that of the rest
  int64_t freeze_trunk = 0;            ///< epochs in which the classifier learns alone
  double trunk_lr = 1.0;               ///< the trunk's rate as a share of the learning rate
  double layer_decay = 1.0;            ///< what each layer has of the rate of the next one towards the output
  std::string stem = "auto";           ///< or imagenet, small

  bool has_own_rates() const { return head_lr.has_value() || trunk_lr != 1.0 || layer_decay != 1.0; }
};

/// --new-head, --head-lr, --freeze-trunk, --trunk-lr, --layer-decay and --stem. `optimizers` are those that
/// --lr is of.
void add_finetune_rows(OptionTable& table, FinetuneOptions& options,
                       const std::vector<std::string>& optimizers);

/// What is wrong with them where a run begins with weights or not, or only tests; empty if nothing is.
std::string check_finetune(const FinetuneOptions& options, bool has_weights, bool evaluate);

/// A line for the start of a run; empty without any.
std::string describe(const FinetuneOptions& options);

/// The groups of a network whose `layers` are prefixes of names, from the input to the classifier, which is
/// the last; none where all have the learning rate `lr`.
std::vector<nn::GroupRule> group_rules(const FinetuneOptions& options,
                                       const std::vector<std::vector<std::string>>& layers, double lr);

/// Freezes, or thaws, all of a model but the parts that begin with `head`.
void freeze_trunk(const nn::ModuleBase& model, const std::string& head, bool frozen);

/// Weights whose classifier, under `head`, is the model's own.
nn::State with_own_head(const nn::State& weights, const nn::ModuleBase& model, const std::string& head);

}  // namespace sinter::examples
