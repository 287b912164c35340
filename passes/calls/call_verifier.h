// Verification of calls: what each kernel of a program gives against the same op in float64, on the values
// that the program itself has there.
#pragma once

#include <string>
#include <vector>

#include <sinter/core/executor/program.h>

namespace sinter::passes {

/// How a call did.
struct CallCheck {
  std::string op, scope, kernel;
  size_t call = 0;    ///< which of the run's calls, from 0
  size_t result = 0;  ///< the one that is furthest off: outputs first, then inputs that are changed in place
  std::string place;  ///< of the element that is furthest off: "(0, 3, 1, 1)"
  double got = 0, expected = 0;
  /// How far that is, in roundings of the result's dtype: of a number as large as the one expected, or as a
  /// typical one (the root of the mean square) where that is larger.
  double roundings = 0;
  /// The same, as a share of what is allowed; above 1 the kernel is wrong.
  double share = 0;
  std::string why_not;  ///< the call was not checked, and why; empty: it was
  bool is_wrong() const { return share > 1.0; }
};

/// Watches one run of a program. Every call is made again on the CPU, in float64 wherever the op takes it, on
/// copies of its inputs. An element may be off by rounding to its dtype once or so, and by what the roundings
/// of a computation in float32 (TF32 where it is allowed, or the op's own dtype) make of it: how far it moves
/// when every input moves by a rounding, times a factor for the length of sums. Beyond that, kernels may
/// round where their ops let them: a 16-bit product before its bias is added; a 16-bit gradient that goes on
/// through a norm, where it is the addend's gradient as well; and the sum of exponentials in cross-entropy,
/// and the probabilities in its gradient, at 1, beside which a small loss is nothing.
class CallVerifier final : public ProgramWatch {
 public:
  explicit CallVerifier(Device device) : device_(device) {}

  void before(const ProgramCall& call, std::span<const TensorView> inputs) override;
  void after(const ProgramCall& call, std::span<const TensorView> inputs,
             std::span<const TensorView> outputs) override;

  const std::vector<CallCheck>& checks() const { return checks_; }
  /// The first that is wrong; nullptr: none.
  const CallCheck* first_wrong() const;

 private:
  Tensor copy(const TensorView& view) const;
  void check(const ProgramCall& call, const std::vector<Tensor>& results, CallCheck& found) const;

  Device device_;
  std::vector<Tensor> inputs_;  // of the call that is under way, on the CPU
  std::vector<CallCheck> checks_;
};

/// "call 12, conv2d in layer1.0.conv1 (kernel winograd): 3.2 is 1200 roundings from 3.1, at (0, 1, 2, 3)"
std::string to_string(const CallCheck& check);

}  // namespace sinter::passes
