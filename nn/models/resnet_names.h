// Residual networks by their names, for programs whose users name one, and for files of weights.
#pragma once

#include <string>
#include <vector>

#include <sinter/nn/models/resnet.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// The names of all functions of resnet.h, the smallest networks for CIFAR first.
const std::vector<std::string>& resnet_names();

/// Whether a name is of one of the networks for CIFAR.
bool is_cifar_resnet(const std::string& name);

/// What the function of that name makes. The options that the name decides are set: `groups`,
/// `width_per_group`, `deep_stem`, `shortcut` and `squeeze_excite` of the networks that differ from resnet18
/// to resnet152 in them, `small_stem` and `width` of those for CIFAR. Throws InvalidArgument that lists the
/// names if there is none such.
ResNet make_resnet(const std::string& name, const ResNetOptions& options = {});

/// The name of the network that a state is of, of whatever width, stem, number of channels and of classes, by
/// names and shapes; empty if it is of none.
std::string recognise_resnet(const State& state);

}  // namespace sinter::nn
