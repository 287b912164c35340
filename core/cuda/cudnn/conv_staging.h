// Convolutions with few input channels as convolutions with more of them, so that tensor cores can read a
// pixel's channels in packs. Host arithmetic without CUDA; docs/cudnn.md tells what it is good for.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sinter/core/cuda/cudnn/cudnn_conv_plan.h>

namespace sinter::cuda {

/// What becomes of the pixels along one axis of x.
enum class AxisStaging : uint8_t {
  kPlain,    ///< they stay
  kBlocks,   ///< each block, as large as the stride, becomes one pixel: the filter has fewer taps, and stride
             ///< 1
  kWindows,  ///< all that an output reads become its own pixel: the filter has one tap
};

/// Pixels of x are gathered into the channels of one, which are followed by zeros up to `channels`. The
/// filter is staged in the same way.
struct ConvStaging {
  std::array<AxisStaging, 2> axes{};  ///< (down, across)
  int64_t channels = 0;

  bool operator==(const ConvStaging&) const = default;
};

/// How the elements of a channels-last array lie in its staged form:
///   staged[n, i, j, u * run + e] = plain[n, step[0] * i - lead[0] + u, (step[1] * j - lead[1]) * channels +
///   e]
/// with u < window[0] and e < run = window[1] * channels, where plain rows are read as width * channels
/// elements. All else is zero.
struct PixelFold {
  int64_t images = 0;
  std::array<int64_t, 2> plain{}, staged{};  ///< (height, width)
  int64_t channels = 0, staged_channels = 0;
  std::array<int64_t, 2> step{1, 1}, window{1, 1}, lead{0, 0};

  int64_t run() const { return window[1] * channels; }
  int64_t plain_count() const { return images * plain[0] * plain[1] * channels; }
  int64_t staged_pixels() const { return images * staged[0] * staged[1]; }
  int64_t staged_count() const { return staged_pixels() * staged_channels; }
};

namespace detail {

constexpr int64_t kMostPaddedChannels =
    32;  // beyond, cuDNN's own ways to read what is not aligned were faster
constexpr int64_t kMostFoldedChannels = 64;

constexpr int64_t round_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// One axis of a staged convolution. With stride s and padding p, output i reads through tap u the pixel
/// s*i - p + u. Blocks: let l be p rounded up to a multiple of s; that pixel is number (u + l - p) % s of
/// block i - l/s + (u + l - p) / s, so x begins l pixels, and the filter l - p taps, before their first
/// elements.
struct StagedAxis {
  int64_t step = 1, window = 1, x_lead = 0, weight_lead = 0;
  int64_t taps, extent;  // of the staged filter and of staged x
  int64_t stride, padding;

  StagedAxis(const ConvProblem& problem, const ConvStaging& staging, size_t axis)
      : taps(problem.weight[2 + axis]),
        extent(problem.x[2 + axis]),
        stride(problem.stride[axis]),
        padding(problem.padding[axis]) {
    if (staging.axes[axis] == AxisStaging::kPlain) return;
    step = stride;
    window = taps;
    x_lead = padding;
    taps = 1;
    if (staging.axes[axis] == AxisStaging::kBlocks) {
      x_lead = round_up(padding, step);
      weight_lead = x_lead - padding;
      taps = round_up(window + weight_lead, step) / step;
      window = step;
    }
    extent = problem.y[2 + axis] + taps - 1;
    stride = 1;
    padding = 0;
  }
};

}  // namespace detail

/// "plain,windows,16".
inline std::string to_string(const ConvStaging& staging) {
  constexpr const char* names[] = {"plain", "blocks", "windows"};
  std::string text;
  for (const AxisStaging axis : staging.axes) text += std::string(names[static_cast<size_t>(axis)]) + ",";
  return text + std::to_string(staging.channels);
}

/// The stagings that may make a convolution faster; none for most. `tensor_cores`: whether they may compute
/// it. With sums, only those that fill packs: what sums up with half of one is compiled for a second, and
/// slow.
inline std::vector<ConvStaging> conv_stagings(const ConvProblem& problem, bool tensor_cores) {
  using enum AxisStaging;
  const int64_t channels = problem.x[1], pack = 16 / static_cast<int64_t>(size_of(problem.dtype));
  const bool has_groups = problem.weight[1] != channels;
  if (!tensor_cores || problem.layout != Layout::kNHWC || has_groups || channels % pack == 0 ||
      channels > detail::kMostPaddedChannels) {
    return {};
  }
  std::vector<ConvStaging> stagings;
  if (channels < pack / 2 && !problem.sums) stagings.push_back({.channels = pack / 2});
  stagings.push_back({.channels = detail::round_up(channels, pack)});

  const auto [down, across] = problem.stride;
  const int64_t height = problem.weight[2], width = problem.weight[3];
  const bool dilates = problem.dilation != std::array<int64_t, 2>{1, 1};
  if (dilates || height < down || width < across) return stagings;
  const auto add = [&](AxisStaging rows, AxisStaging columns, int64_t pixels) {
    const int64_t folded = detail::round_up(channels * pixels, pack);
    if (pixels > 1 && folded <= detail::kMostFoldedChannels) stagings.push_back({{rows, columns}, folded});
  };
  const AxisStaging blocks_down = down > 1 ? kBlocks : kPlain;
  add(blocks_down, across > 1 ? kBlocks : kPlain, down * across);
  // Windows overlap: a gradient of x would have to be summed over them.
  if (problem.pass == ConvPass::kGradInput || width == across) return stagings;
  add(blocks_down, kWindows, down * width);
  if (height > down) add(kWindows, kWindows, height * width);
  return stagings;
}

/// The convolution that is left when x and weight are staged; y is the same.
inline ConvProblem staged_problem(const ConvProblem& problem, const ConvStaging& staging) {
  ConvProblem staged = problem;
  staged.x[1] = staged.weight[1] = staging.channels;
  for (const size_t axis : {size_t{0}, size_t{1}}) {
    const detail::StagedAxis as(problem, staging, axis);
    staged.x[2 + axis] = as.extent;
    staged.weight[2 + axis] = as.taps;
    staged.stride[axis] = as.stride;
    staged.padding[axis] = as.padding;
  }
  return staged;
}

inline PixelFold fold_of_x(const ConvProblem& problem, const ConvStaging& staging) {
  PixelFold fold{.images = problem.x[0], .channels = problem.x[1], .staged_channels = staging.channels};
  for (const size_t axis : {size_t{0}, size_t{1}}) {
    const detail::StagedAxis as(problem, staging, axis);
    fold.plain[axis] = problem.x[2 + axis];
    fold.staged[axis] = as.extent;
    fold.step[axis] = as.step;
    fold.window[axis] = as.window;
    fold.lead[axis] = as.x_lead;
  }
  return fold;
}

inline PixelFold fold_of_weight(const ConvProblem& problem, const ConvStaging& staging) {
  PixelFold fold{
      .images = problem.weight[0], .channels = problem.weight[1], .staged_channels = staging.channels};
  for (const size_t axis : {size_t{0}, size_t{1}}) {
    const detail::StagedAxis as(problem, staging, axis);
    fold.plain[axis] = problem.weight[2 + axis];
    fold.staged[axis] = as.taps;
    fold.step[axis] = as.step;
    fold.window[axis] = as.window;
    fold.lead[axis] = as.weight_lead;
  }
  return fold;
}

}  // namespace sinter::cuda
