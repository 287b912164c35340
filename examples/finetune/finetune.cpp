#include "finetune/finetune.h"

#include <algorithm>

#include <fmt/core.h>

#include "run/command_line.h"

namespace sinter::examples {

void add_finetune_rows(OptionTable& table, FinetuneOptions& options,
                       const std::vector<std::string>& optimizers) {
  table
      .add("--new-head", options.new_head,
           "Begin the classifier of --load-weights afresh, as for other classes than theirs")
      .kept_unless("false");
  table.add("--head-lr", options.head_lr, number(1e-9, 1e3), "Largest learning rate of the classifier (--lr)")
      .of_optimizers(optimizers);
  table
      .add(
          "--freeze-trunk", options.freeze_trunk, whole(0, 1'000'000),
          "For so many epochs train the classifier alone, and keep the statistics of batch norms; as many as "
          "--epochs: always. 0: not at all")
      .kept_unless("0");
  table
      .add("--trunk-lr", options.trunk_lr, number(0, 1),
           "Learning rate of all but the classifier, as a share of --lr")
      .kept_unless("1");
  table
      .add("--layer-decay", options.layer_decay, number(1e-3, 1),
           "Learning rate of each block as a share of the next one's, from the classifier to the input")
      .kept_unless("1");
  table
      .add("--stem", options.stem, one_of({"auto", "imagenet", "small"}),
           "First layers of resnet18 and larger: imagenet (7x7, pooled), small (3x3) or auto: those of "
           "--load-weights, else small for images of up to 64 pixels")
      .kept_unless("auto");
}

std::string check_finetune(const FinetuneOptions& options, bool has_weights, bool evaluate) {
  if (options.new_head && evaluate)
    return "--new-head makes a classifier that has learnt nothing; leave it out with --evaluate";
  if (options.new_head && !has_weights)
    return "--new-head needs --load-weights <file>: without weights all of the network is new";
  if (options.freeze_trunk > 0 && !has_weights)
    return "--freeze-trunk needs --load-weights <file>: a trunk that is new has to learn";
  return {};
}

std::string describe(const FinetuneOptions& options) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (options.new_head) add("a new classifier");
  if (options.freeze_trunk > 0)
    add(fmt::format("the classifier alone for {} epoch{}", options.freeze_trunk,
                    options.freeze_trunk == 1 ? "" : "s"));
  if (options.head_lr) add(fmt::format("its learning rate {}", *options.head_lr));
  if (options.trunk_lr != 1.0) add(fmt::format("{} of the rate for the rest", options.trunk_lr));
  if (options.layer_decay != 1.0) add(fmt::format("{} from block to block", options.layer_decay));
  if (options.stem != "auto") add(fmt::format("{} stem", options.stem));
  return text;
}

std::vector<nn::GroupRule> group_rules(const FinetuneOptions& options,
                                       const std::vector<std::vector<std::string>>& layers, double lr) {
  if (!options.has_own_rates()) return {};
  const std::vector<std::string>& head = layers.back();
  std::vector<nn::GroupRule> rules;
  for (const std::string& prefix : head)
    rules.push_back({.prefix = prefix, .lr_scale = options.head_lr.value_or(lr) / lr});
  if (options.layer_decay != 1.0) {
    for (nn::GroupRule rule : nn::layer_decay(layers, options.layer_decay)) {
      rule.lr_scale *= options.trunk_lr;
      if (std::ranges::count(head, rule.prefix) == 0) rules.push_back(rule);
    }
  }
  rules.push_back({.lr_scale = options.trunk_lr});
  return rules;
}

void freeze_trunk(const nn::ModuleBase& model, const std::string& head, bool frozen) {
  if (!frozen) return model.unfreeze();
  model.freeze();
  model.unfreeze(head);
}

nn::State with_own_head(const nn::State& weights, const nn::ModuleBase& model, const std::string& head) {
  nn::State state = weights;
  std::erase_if(state, [&](const auto& entry) { return entry.first.starts_with(head); });
  for (const auto& [name, value] : model.state()) {
    if (name.starts_with(head)) state[name] = value;
  }
  return state;
}

}  // namespace sinter::examples
