// parameter_groups: which of a model's parameters are trained how, by their names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sinter/nn/optim/optimizer.h>

namespace sinter::nn {

/// How parameters are treated whose names begin alike.
struct GroupRule {
  std::string prefix = {};  ///< of the names: "fc.", "layer4.1."; empty: all that earlier rules leave
  double lr_scale = 1.0;    ///< multiplies the learning rate that step() is given
  std::optional<double> weight_decay = {};  ///< the optimiser's own if not given
  bool clip = true;                         ///< as of ParameterGroup
};

struct GroupOptions {
  /// Whether parameters of fewer than two axes (biases, and scales, shifts and slopes of norms and
  /// activations) have weight decay; they are better left alone. Source: T. He et al., "Bag of tricks for
  /// image classification with convolutional neural networks", CVPR 2019, 3.1.
  bool decay_vectors = true;
};

/// The groups for an optimiser. Of several rules that fit a name the first counts; parameters that none fits
/// are treated as by a rule without options.
///
///   nn::SGD sgd(nn::parameter_groups(model, {{.prefix = "fc."}, {.lr_scale = 0.1}}, {.decay_vectors =
///   false}),
///               {.momentum = 0.9, .weight_decay = 1e-4});
///
/// Frozen parameters are in their groups, so that they can be thawed. Throws InvalidArgument for a rule with
/// a prefix that is given no parameter.
std::vector<ParameterGroup> parameter_groups(const ModuleBase& model,
                                             const std::vector<GroupRule>& rules = {},
                                             const GroupOptions& options = {});
/// The same of any parameters, such as those of two modules with nn::add_prefix.
std::vector<ParameterGroup> parameter_groups(const std::vector<Parameter>& parameters,
                                             const std::vector<GroupRule>& rules = {},
                                             const GroupOptions& options = {});

/// Rules for learning rates that fall from a network's output to its input. `layers` are prefixes of names,
/// the input's first; several of one layer share its rate. The last layer has the whole rate, and each before
/// it `decay` of the next one's. Throws InvalidArgument unless 0 < `decay` <= 1. Source: J. Howard, S. Ruder,
/// "Universal language model fine-tuning for text classification", ACL 2018, 3.2.
std::vector<GroupRule> layer_decay(const std::vector<std::vector<std::string>>& layers, double decay);

}  // namespace sinter::nn
