// The cases of a sweep, drawn from a seed: shapes that stand in no table. This is the only place that makes
// them; sweep.py and the PyTorch peer read the list that the program prints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/core/base/dtype.h>
#include <sinter/core/base/layout.h>

#include "common/norm_case.h"

namespace sinter::bench {

inline constexpr std::string_view kSweepFamilies[] = {"prelu", "permute", "batch_norm", "matvec"};

struct SweepCase {
  std::string family = {};
  /// batch_norm: what follows the normalisation; prelu: "channels" or "one slope"; matvec: which product of
  /// the matrix a and the vectors x, one of "a x", "aT x", and for several vectors "x a", "x aT".
  std::string kind = {};
  std::string direction = {};  ///< "forward", "backward", or empty where there is one only
  std::vector<int64_t> shape =
      {};  ///< (N, C, H, W), permute's input, or the matrices of matvec: ([batch,] m, n)
  DType dtype = DType::kFloat32;
  bool has_layout = false;
  Layout layout = Layout::kNCHW;
  std::vector<int64_t> axes = {};  ///< permute
  int64_t vectors = 0;             ///< matvec: how many vectors each matrix is multiplied with
  bool two_gradients = false;      ///< batch_norm backward

  int64_t elements() const;
  double bytes() const;  ///< of the tensor that gives the case its size
};

/// "backward BN+Add+ReLU (16,31,57,57)", with dtype and layout unique within a list.
std::string to_string(const SweepCase& c);

/// Of a batch_norm case.
NormCase norm_case_of(const SweepCase& c);

struct SweepDraw {
  uint64_t seed = 1;
  int cases = 150;                    ///< of each family
  std::vector<std::string> families;  ///< of kSweepFamilies
  double smallest_bytes = 1 << 20, largest_bytes = 512 << 20;
};

/// The same list for the same draw on every machine; the families take turns, and each family's cases do not
/// depend on which others are drawn, so that a sweep that is cut short has seen as much of each. Sizes are
/// uniform in the logarithm. Throws InvalidArgument for an unknown family or sizes between which there is
/// nothing.
std::vector<SweepCase> draw_cases(const SweepDraw& draw);

}  // namespace sinter::bench
