// Weights of classes from a file.
#pragma once

#include <string>

#include <sinter/nn/data/dataset.h>

namespace train_resnet {

/// What --class-weights says, with a file's numbers in place of its name: "balanced", or a number for each
/// class. A file has a line for each class, its name and its weight with a comma or white space between them,
/// or the weights alone in the order of the classes. Throws Error that names the line for others, and for
/// classes that the data does not have, or that are missing.
std::string read_class_weights(const std::string& text, const sinter::nn::data::Dataset& train);

}  // namespace train_resnet
