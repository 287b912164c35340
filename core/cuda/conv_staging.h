// Convolutions with few input channels as convolutions with more of them, so that tensor cores can read a
// pixel's channels in packs. Host arithmetic without CUDA; docs/cudnn.md tells what it is good for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sinter/core/cuda/cudnn_conv_plan.h>

namespace sinter::cuda {

/// A block of pixels of x becomes one pixel with all their channels, and with zeros up to `channels`. Blocks
/// of one pixel only pad the channels; larger ones are as large as the strides, so that the convolution of
/// the blocks has stride 1.
struct ConvStaging {
  std::array<int64_t, 2> block{1, 1};  ///< pixels (down, across)
  int64_t channels = 0;

  bool folds() const { return block[0] * block[1] > 1; }
  bool operator==(const ConvStaging&) const = default;
};

/// How the pixels of a channels-last array lie in its staged form:
///   staged[n, i, j, u * block[1] * channels + e] =
///       plain[n, block[0] * i - lead[0] + u, (block[1] * j - lead[1]) * channels + e]
/// where plain rows are read as width * channels elements, e < block[1] * channels, and all else is zero.
struct BlockFold {
  int64_t images = 0;
  std::array<int64_t, 2> plain{}, staged{};  ///< (height, width)
  int64_t channels = 0, staged_channels = 0;
  std::array<int64_t, 2> block{1, 1}, lead{0, 0};

  int64_t plain_count() const { return images * plain[0] * plain[1] * channels; }
  int64_t staged_pixels() const { return images * staged[0] * staged[1]; }
  int64_t staged_count() const { return staged_pixels() * staged_channels; }
};

namespace detail {

constexpr int64_t kMostFoldedChannels = 32;  // so many fill a tensor core without folding

constexpr int64_t round_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// With stride and block s and padding p, output i reads through tap u the pixel s*i - p + u. Let l be p
/// rounded up to a multiple of s: that pixel is number (u + l - p) % s of block i - l/s + (u + l - p) / s. So
/// x begins l pixels, and the filter l - p taps, before their first elements.
struct FoldedAxis {
  int64_t x_lead, weight_lead, taps, extent;

  FoldedAxis(const ConvProblem& problem, const ConvStaging& staging, size_t axis)
      : x_lead(round_up(problem.padding[axis], staging.block[axis])),
        weight_lead(x_lead - problem.padding[axis]),
        taps(round_up(problem.weight[2 + axis] + weight_lead, staging.block[axis]) / staging.block[axis]),
        extent(problem.y[2 + axis] + taps - 1) {}
};

}  // namespace detail

/// "1x1x8" or "2x2x16": block and channels.
inline std::string to_string(const ConvStaging& staging) {
  return std::to_string(staging.block[0]) + "x" + std::to_string(staging.block[1]) + "x" +
         std::to_string(staging.channels);
}

/// The stagings that may make a convolution faster; none for most. `tensor_cores`: whether they may compute
/// it.
inline std::vector<ConvStaging> conv_stagings(const ConvProblem& problem, bool tensor_cores) {
  const int64_t channels = problem.x[1], pack = 16 / static_cast<int64_t>(size_of(problem.dtype));
  const bool has_groups = problem.weight[1] != channels;
  if (!tensor_cores || problem.layout != Layout::kNHWC || has_groups || channels % pack == 0) return {};
  std::vector<ConvStaging> stagings;
  if (channels < pack / 2) stagings.push_back({.channels = pack / 2});
  stagings.push_back({.channels = detail::round_up(channels, pack)});

  const auto [down, across] = problem.stride;
  const bool skips_pixels = problem.weight[2] < down || problem.weight[3] < across;
  const bool dilates = problem.dilation != std::array<int64_t, 2>{1, 1};
  const int64_t folded = channels * down * across;
  if (down * across > 1 && !skips_pixels && !dilates && folded <= detail::kMostFoldedChannels) {
    stagings.push_back({.block = problem.stride, .channels = detail::round_up(folded, pack)});
  }
  return stagings;
}

/// The convolution that is left when x and weight are staged; y is the same.
inline ConvProblem staged_problem(const ConvProblem& problem, const ConvStaging& staging) {
  ConvProblem staged = problem;
  staged.x[1] = staged.weight[1] = staging.channels;
  if (!staging.folds()) return staged;
  for (const size_t axis : {size_t{0}, size_t{1}}) {
    const detail::FoldedAxis folded(problem, staging, axis);
    staged.x[2 + axis] = folded.extent;
    staged.weight[2 + axis] = folded.taps;
  }
  staged.stride = {1, 1};
  staged.padding = {0, 0};
  return staged;
}

inline BlockFold fold_of_x(const ConvProblem& problem, const ConvStaging& staging) {
  const ConvProblem staged = staged_problem(problem, staging);
  BlockFold fold{.images = problem.x[0],
                 .plain = {problem.x[2], problem.x[3]},
                 .staged = {staged.x[2], staged.x[3]},
                 .channels = problem.x[1],
                 .staged_channels = staging.channels,
                 .block = staging.block};
  if (!staging.folds()) return fold;
  for (const size_t axis : {size_t{0}, size_t{1}}) {
    fold.lead[axis] = detail::FoldedAxis(problem, staging, axis).x_lead;
  }
  return fold;
}

inline BlockFold fold_of_weight(const ConvProblem& problem, const ConvStaging& staging) {
  const ConvProblem staged = staged_problem(problem, staging);
  BlockFold fold{.images = problem.weight[0],
                 .plain = {problem.weight[2], problem.weight[3]},
                 .staged = {staged.weight[2], staged.weight[3]},
                 .channels = problem.weight[1],
                 .staged_channels = staging.channels,
                 .block = staging.block};
  if (!staging.folds()) return fold;
  for (const size_t axis : {size_t{0}, size_t{1}}) {
    fold.lead[axis] = detail::FoldedAxis(problem, staging, axis).weight_lead;
  }
  return fold;
}

}  // namespace sinter::cuda
