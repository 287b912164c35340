// Where values that are infinite or not a number first appear in a network.
#pragma once

#include <functional>
#include <string>

#include <sinter/nn/module/module.h>

namespace sinter::examples {

/// Tells of the first weight that is not finite, in the order of the network; or else of the first layer that
/// gives such a value while `run` calls the model; or else of the first gradient that backward made so, if
/// `run` calls it. Empty if there is none.
std::string first_bad_value(const nn::ModuleBase& model, const std::function<void()>& run);

}  // namespace sinter::examples
