// The calls of the table of all ops: for every registered op one large and one odd shape.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::bench {

/// How large the calls of one row are. `elements` tells shapes that have no images or rows.
struct OpSize {
  std::string name;  ///< "large" or "odd"
  DType dtype = DType::kFloat16;
  int64_t images = 0, channels = 0, height = 0, width = 0;  ///< of images
  int64_t rows = 0, columns = 0;                            ///< of matrices that are walked over
  int64_t classes = 0;                                      ///< of logits, whose rows follow
  int64_t m = 0, n = 0, k = 0;                              ///< of products
  Layout layout = Layout::kNCHW;
  Device device = {};

  int64_t samples() const { return rows * columns / classes; }
  /// (N, C, H, W) or (N, H, W, C).
  Shape image(int64_t n_images, int64_t c, int64_t h, int64_t w) const;
  Shape image() const { return image(images, channels, height, width); }
};

struct OpInput {
  Shape shape;
  DType dtype = DType::kFloat32;
  int64_t count = 0;                ///< of integers: each is below this
  std::vector<double> values = {};  ///< or these, over and over
};

/// Inputs that are not there are empty.
struct OpCase {
  std::vector<std::optional<OpInput>> inputs;
  Attributes attributes = {};
  std::string variant = {};  ///< tells two cases of one op apart
};

using MakeOpCases = std::vector<OpCase> (*)(const OpSize& size);
using OpCaseTable = std::map<std::string, MakeOpCases>;

/// Of images, products and norms; of everything else that is not elementwise.
void add_image_cases(OpCaseTable& table);
void add_other_cases(OpCaseTable& table);

}  // namespace sinter::bench
