// --augment: policies and steps of augmentation by name, "trivialaugment" or "3augment+blur:0.2".
#pragma once

#include <string>
#include <vector>

#include <sinter/nn/data/augmentation.h>

#include "run/check.h"

namespace sinter::examples {

/// What a list of names with their numbers says, in its order. Throws InvalidArgument, with the names that
/// there are or the numbers that a name takes, for what it cannot read.
std::vector<nn::data::Augmentation> parse_augment_list(const std::string& text);

/// Lets pass what parse_augment_list() reads, and "none".
Check augment_list();

}  // namespace sinter::examples
