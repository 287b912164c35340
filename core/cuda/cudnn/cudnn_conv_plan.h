// cuDNN's convolutions, and Sinter's own depthwise ones, behind one small interface: a problem in, a plan
// out. How plans are found: docs/cudnn.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <sinter/core/base/dtype.h>
#include <sinter/core/base/layout.h>
#include <sinter/core/runtime/backend.h>

namespace sinter::cuda {

/// Which tensor of y = conv(x, weight) is computed from the other two.
enum class ConvPass : uint8_t { kForward, kGradInput, kGradWeight };

/// Bytes by which the address of every tensor must divide.
inline constexpr size_t kConvAlignment = 16;

/// The most scratch that a plan may ask for unless a problem says otherwise.
inline constexpr size_t kConvWorkspaceLimit = size_t{1} << 30;

enum class ConvActivation : uint8_t { kNone, kRelu, kPRelu };

/// What a forward convolution does to its result before it is rounded and written:
///   y = activation(conv(x, weight) + addend + bias).
struct ConvEpilogue {
  bool bias = false, addend = false;
  ConvActivation activation = ConvActivation::kNone;
  DType slope_dtype = DType::kFloat32;  ///< of PReLU's slopes; else it stays so

  bool is_there() const { return *this != ConvEpilogue(); }
  bool operator==(const ConvEpilogue&) const = default;
};

/// A convolution, up to the values. Extents do not depend on the layout; groups follow from the channels.
struct ConvProblem {
  int device = 0;
  ConvPass pass = ConvPass::kForward;
  DType dtype = DType::kFloat32;
  Layout layout = Layout::kNCHW;
  std::array<int64_t, 4> x{};       ///< images, channels, height, width
  std::array<int64_t, 4> weight{};  ///< output channels, channels / groups, height, width
  std::array<int64_t, 4> y{};       ///< images, output channels, height, width
  std::array<int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  bool sums = false;  ///< kForward only: the sums of y's elements, and of their squares, are computed with y
  ConvEpilogue epilogue = {};  ///< kForward without sums only
  size_t workspace_limit = kConvWorkspaceLimit;

  bool operator==(const ConvProblem&) const = default;
};

/// "forward float16 NHWC x(32,64,56,56) w(64,64,3,3) y(32,64,56,56) s1,1 p1,1 d1,1": all but device and
/// limit.
std::string to_string(const ConvProblem& problem);

/// The arrays of a problem, of which the pass says which are written.
struct ConvArrays {
  void *x = nullptr, *weight = nullptr, *y = nullptr;
  float* sums = nullptr;  ///< (2, output channels), of a problem with sums: of elements, and of their squares
  /// Of a problem with an epilogue: (output channels), as y, and (output channels).
  const void *bias = nullptr, *addend = nullptr, *slope = nullptr;
};

/// An algorithm that is ready to run. Safe to use from several threads.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  virtual size_t workspace_bytes() const = 0;
  /// cuDNN's engine and its knobs, and the staging if there is one (core/cuda/cudnn/conv_staging.h), or
  /// "depthwise", for logs.
  virtual const std::string& name() const = 0;
  /// Queues the convolution. The stream's device is the current one. Throws DeviceError.
  virtual void run(const Stream& stream, const ConvArrays& arrays, void* workspace) const = 0;
};

/// The plan for a problem under the present settings (core/runtime/settings.h), found at the first call and
/// then remembered, up to settings::plan_limit() of them; nullptr if there is none. Does not time plans
/// while any thread captures work (Capture in core/runtime/backend.h); what is captured needs its plans as
/// long as it is launched. Throws DeviceError if cuDNN is not usable.
std::shared_ptr<const ConvPlan> find_conv_plan(const ConvProblem& problem);

}  // namespace sinter::cuda
