// Cases of ops of images and norms.
#include <sinter/ops/adaptive_pool/adaptive_pool.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/upsample/upsample.h>

#include "nn/export/onnx_cases.h"

namespace sinter::nn::testing {
namespace {

using Tensors = std::span<const Tensor>;
using Results = std::vector<Tensor>;
constexpr int64_t kN = OnnxCase::kBatch;

Results convolutions(Tensors in, CaseWeights& weights) {
  const Tensor& x = in[0];  // (N, 4, 9, 8)
  return {
      ops::conv2d(x, weights({6, 4, 3, 3}), weights({6})),
      ops::conv2d(x, weights({6, 4, 3, 2}), {}, {.stride = {2, 3}, .padding = {1, 2}}),
      ops::conv2d(x, weights({6, 4, 2, 3}), weights({6}), {.padding = {2, 0}, .dilation = {3, 2}}),
      ops::conv2d(x, weights({6, 2, 3, 3}), {}, {.padding = {1, 1}, .groups = 2}),
      ops::conv2d(x, weights({8, 1, 3, 3}), weights({8}), {.stride = {2, 2}, .padding = {1, 1}, .groups = 4}),
      ops::conv2d(x, weights({5, 4, 1, 1}), {})};
}

Results transposed_convolutions(Tensors in, CaseWeights& weights) {
  const Tensor& x = in[0];  // (N, 4, 5, 6)
  return {ops::vjp::conv2d_input(x, weights({4, 3, 2, 2}), {10, 12}, {.stride = {2, 2}}),
          ops::vjp::conv2d_input(x, weights({4, 3, 3, 3}), {10, 12}, {.stride = {2, 2}, .padding = {1, 1}}),
          ops::vjp::conv2d_input(x, weights({4, 3, 3, 4}), {15, 17}, {.stride = {3, 3}, .padding = {1, 2}}),
          ops::vjp::conv2d_input(x, weights({4, 3, 3, 3}), {5, 6}, {.padding = {1, 1}, .groups = 2}),
          ops::vjp::conv2d_input(x, weights({4, 2, 3, 2}), {12, 13},
                                 {.stride = {2, 2}, .padding = {1, 0}, .dilation = {2, 2}})};
}

Results max_pools(Tensors in, CaseWeights&) {
  const Tensor& x = in[0];  // (N, 3, 9, 8)
  return {ops::max_pool2d(x, 2),
          ops::max_pool2d(x, {3, 3}, {.stride = {2, 2}, .padding = {1, 1}}),
          ops::max_pool2d(x, {3, 2}, {.stride = {2, 3}, .ceil_mode = true}),
          ops::max_pool2d(x, {3, 3}, {.stride = {2, 2}, .padding = {0, 1, 1, 0}}),
          ops::max_pool2d(x, {2, 3}, {.stride = {1, 2}, .padding = {1, 2}, .dilation = {3, 2}}),
          ops::max_pool2d(x, {4, 3}, {.stride = {3, 3}, .padding = {1, 1}, .ceil_mode = true}),
          ops::max_pool2d(x, {2, 2}, {.stride = {3, 3}, .dilation = {4, 5}, .ceil_mode = true}),
          ops::max_pool2d(x, {2, 3},
                          {.stride = {5, 3}, .padding = {1, 1}, .dilation = {6, 2}, .ceil_mode = true})};
}

Results average_pools(Tensors in, CaseWeights&) {
  const Tensor& x = in[0];  // (N, 3, 9, 8)
  std::vector<Tensor> results;
  for (const bool count : {true, false}) {
    for (const bool ceil : {true, false}) {
      for (const int64_t divisor : {0, 5}) {
        results.push_back(ops::avg_pool2d(
            x, {2, 3},
            {.stride = {2, 2}, .ceil_mode = ceil, .count_include_pad = count, .divisor = divisor}));
        results.push_back(ops::avg_pool2d(x, {4, 3},
                                          {.stride = {3, 2},
                                           .padding = {1, 1},
                                           .ceil_mode = ceil,
                                           .count_include_pad = count,
                                           .divisor = divisor}));
        results.push_back(ops::avg_pool2d(x, {4, 4},
                                          {.stride = {3, 3},
                                           .padding = {2, 0, 0, 1},
                                           .ceil_mode = ceil,
                                           .count_include_pad = count,
                                           .divisor = divisor}));
      }
    }
  }
  return results;
}

Results adaptive_pools(Tensors in, CaseWeights&) {
  const Tensor& x = in[0];  // (N, 3, 12, 8)
  return {ops::global_avg_pool2d(x),
          ops::adaptive_avg_pool2d(x, {1, 1}),
          ops::adaptive_avg_pool2d(x, {4, 2}),
          ops::adaptive_avg_pool2d(x, {12, 8}),
          ops::adaptive_avg_pool2d(x, {5, 3}),
          ops::adaptive_avg_pool2d(x, {12, 3}),
          ops::adaptive_avg_pool2d(x, {7, 8}),
          ops::adaptive_avg_pool2d(x, {15, 11}),
          ops::adaptive_max_pool2d(x, {4, 2}),
          ops::adaptive_max_pool2d(x, {5, 3}),
          ops::adaptive_max_pool2d(x, {12, 3}),
          ops::adaptive_max_pool2d(x, {15, 11})};
}

Results upsampled(Tensors in, CaseWeights&) {
  const Tensor& x = in[0];  // (N, 3, 7, 5)
  std::vector<Tensor> results;
  for (const Size2d size : {Size2d{14, 10}, {21, 5}, {7, 5}, {13, 11}, {3, 2}, {1, 1}, {8, 15}, {49, 4}}) {
    results.push_back(ops::upsample(x, {.size = size}));
    results.push_back(ops::upsample(x, {.size = size, .mode = ops::UpsampleMode::kBilinear}));
    results.push_back(
        ops::upsample(x, {.size = size, .mode = ops::UpsampleMode::kBilinear, .align_corners = true}));
  }
  return results;
}

Results norms(Tensors in, CaseWeights& weights) {
  const Tensor &x = in[0], &v = in[1], &a = in[2];  // (N, 4, 3, 5), (N, 4), as x
  const auto vector = [&] { return weights.wide({4}); };
  const auto positive = [&] { return weights.wide({4}, 0.5, 2.0); };
  const ops::BatchNormOptions inference{.training = false};
  const auto norm = [&] { return ops::NormTensors{vector(), vector(), vector(), positive()}; };
  const auto given = [&] {
    return ops::NormTensors{.weight = vector(), .bias = vector(), .mean = vector(), .inv_std = positive()};
  };
  using ops::fused::Activation;
  return {
      ops::batch_norm(x, vector(), vector(), vector(), positive(), inference),
      ops::batch_norm(x, {}, {}, vector(), positive(), {.epsilon = 0.25, .training = false}),
      ops::batch_norm(v, vector(), {}, vector(), positive(), inference),
      ops::fused::batch_norm_act(x, norm(), {}, {}, {}, {.training = false}),
      ops::fused::batch_norm_act(x, norm(), a, {}, {}, {.training = false, .activation = Activation::kNone}),
      ops::fused::batch_norm_act(x, norm(), a, {}, vector(),
                                 {.training = false, .activation = Activation::kPRelu}),
      ops::fused::batch_norm_act(v, norm(), {}, {}, vector(),
                                 {.training = false, .activation = Activation::kPRelu}),
      ops::fused::batch_norm_act(x, norm(), a, norm(), {}, {.training = false, .normalize_addend = true}),
      ops::fused::batch_norm_act(x, given(), {}, {}, {},
                                 {.training = false, .activation = Activation::kNone}),
      ops::fused::batch_norm_act(v, {.mean = vector(), .inv_std = positive()}, {}, {}, {},
                                 {.training = false}),
      ops::fused::batch_norm_act(
          x, given(), a, given(), weights.wide({1}),
          {.training = false, .activation = Activation::kPRelu, .normalize_addend = true}),
      ops::prelu(x, weights({4})),
      ops::prelu(x, weights({1})),
      ops::prelu(v, weights({4})),
      ops::prelu(ops::flatten(x, 2), weights({4})),
      ops::prelu(ops::flatten(x, 0), weights({1}))};
}

/// The same of images that lie (N, H, W, C).
Results of_channels_last(Tensors in, CaseWeights& weights) {
  const Tensor& x = in[0];  // (N, 8, 9, 4)
  constexpr Layout kLast = Layout::kNHWC;
  const Tensor y = ops::conv2d(x, weights({6, 3, 3, 4}), weights({6}), {.padding = {1, 1}, .layout = kLast});
  const Tensor normed = ops::batch_norm(y, weights.wide({6}), weights.wide({6}), weights.wide({6}),
                                        weights.wide({6}, 0.5, 2.0), {.training = false, .layout = kLast});
  const Tensor activated = ops::prelu(normed + ops::full_like(y, 0.5), weights({6}), {.layout = kLast});
  return {x,
          activated,
          ops::max_pool2d(activated, 2, {.layout = kLast}),
          ops::adaptive_avg_pool2d(activated, {3, 4}, {.layout = kLast}),
          ops::upsample(activated, {.size = Size2d(11, 9), .layout = kLast}),
          ops::vjp::conv2d_input(y, weights({6, 2, 2, 3}), {16, 18}, {.stride = {2, 2}, .layout = kLast}),
          ops::global_avg_pool2d(y, {.layout = kLast}),
          ops::flatten(y, 1)};
}

}  // namespace

std::vector<OnnxCase> onnx_image_cases() {
  std::vector<OnnxCase> cases{
      function_case("convolutions", {float_input({kN, 4, 9, 8})}, convolutions),
      function_case("transposed_convolutions", {float_input({kN, 4, 5, 6})}, transposed_convolutions),
      function_case("max_pools", {float_input({kN, 3, 9, 8})}, max_pools),
      function_case("average_pools", {float_input({kN, 3, 9, 8})}, average_pools),
      function_case("adaptive_pools", {float_input({kN, 3, 12, 8})}, adaptive_pools),
      function_case("upsampled", {float_input({kN, 3, 7, 5})}, upsampled),
      function_case("norms", {float_input({kN, 4, 3, 5}), float_input({kN, 4}), float_input({kN, 4, 3, 5})},
                    norms),
      function_case("of_channels_last", {float_input({kN, 8, 9, 4})}, of_channels_last)};
  cases.back().layout = Layout::kNHWC;
  return cases;
}

}  // namespace sinter::nn::testing
