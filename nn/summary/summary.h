// What a model consists of and what it costs, in a table.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sinter/nn/module/module.h>

namespace sinter::nn {

struct Summary {
  struct Row {
    std::string path;  ///< "layer1.0.conv1"; empty for the model itself
    std::string type;  ///< "Conv2d"
    std::string options;
    int depth = 0;
    Shape output;  ///< of the last call; if `called` and the module gives one tensor
    bool has_output = false;
    bool called = false;
    int64_t parameters = 0;     ///< elements of its own, not of its sub-modules
    int64_t multiply_adds = 0;  ///< of convolutions and matrix products within it, sub-modules included
  };
  std::vector<Row> rows;          ///< depth first
  int64_t parameters = 0;         ///< each counted once, however many modules share it
  int64_t frozen_parameters = 0;  ///< those among them that require no gradient
  int64_t multiply_adds = 0;

  /// A table with a line per module and the totals below.
  std::string to_string() const;
};

/// Calls `model` once on zeros of `input`, moved to the device of its parameters, in evaluation mode and
/// without recording, and notes every module's output, parameters and multiply-adds. Convolutions (transposed
/// ones too), matrix and matrix-vector products are counted, of the whole batch; element by element work is
/// not. The model's modes are as before afterwards.
Summary summary(const Module& model, const TensorSpec& input);
/// float32 or, if the model's first parameter is 16-bit or float64, of its dtype.
Summary summary(const Module& model, const Shape& input);
/// For models of other signatures: `run` calls the model.
Summary summary(const ModuleBase& model, const std::function<void()>& run);

}  // namespace sinter::nn
