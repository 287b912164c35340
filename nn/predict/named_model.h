// Models by what ModelMetadata says of them: the name of the function that makes one, and its options.
#pragma once

#include <string>
#include <vector>

#include <sinter/nn/checkpoint/model_metadata.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// The names that make_model knows: "resnet18", "iresnet50", ...
std::vector<std::string> model_names();

/// The model `metadata.model` with `metadata.options`, which must give the number of "classes" (of an iResNet
/// or MobileFaceNet "dimensions"), with fresh weights, on the CPU. Throws InvalidArgument for a name or an
/// option that it does not know, and for a value that is none.
AnyModule make_model(const ModelMetadata& metadata, Layout layout = Layout::kNCHW);

}  // namespace sinter::nn
