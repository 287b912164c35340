// PReLU on the feature maps of a ResNet: forward, backward (dx and dalpha) and the gradient of x alone, in
// all 16- and 32-bit dtypes and both layouts; with 16 bits also beside float32 slopes, as in mixed precision.
#include <array>

#include <sinter/core/op/node.h>
#include <sinter/ops/prelu/prelu.h>

#include "common/gpu_bench.h"

using namespace sinter;

namespace {

struct Case {
  std::array<int64_t, 4> shape;  // N, C, H, W
  double forward_share;
};

constexpr Case kCases[] = {{{96, 64, 112, 112}, 0.95},
                           {{96, 64, 56, 56}, 0.95},
                           {{96, 128, 28, 28}, 0.95},
                           {{96, 256, 14, 14}, 0.95},
                           {{96, 512, 7, 7}, 0.90}};
constexpr double kBackwardShare = 0.90;
// No peers: PyTorch's backward always sums dalpha, and its slopes have x's dtype.
constexpr const char* kGradX = "backward of x";
constexpr const char *kWideForward = "forward, float32 slopes", *kWideBackward = "backward, float32 slopes";

bool has_peer(const std::string& what) {
  return what != kGradX && what != kWideForward && what != kWideBackward;
}

Shape stored_shape(const std::array<int64_t, 4>& shape, Layout layout) {
  const auto [n, c, h, w] = shape;
  return layout == Layout::kNHWC ? Shape{n, h, w, c} : Shape{n, c, h, w};
}

void run_case(bench::Report& report, const Case& one, DType dtype, Layout layout) {
  const auto [n, c, h, w] = one.shape;
  const std::string label = fmt::format("({},{},{},{})", n, c, h, w);
  const Shape shape = stored_shape(one.shape, layout);
  const double bytes = static_cast<double>(shape.numel()) * static_cast<double>(size_of(dtype));
  const auto add = [&](const std::string& what, double moved, std::optional<double> share, const auto& call) {
    const std::string name = what + " " + label, type(to_string(dtype)), order(to_string(layout));
    if (!report.wants("prelu", name, type, order)) return;
    bench::Row row{.suite = "prelu", .name = name, .dtype = type, .layout = order};
    row.us = bench::time_cold(call);
    row.minimum_bytes = moved;
    row.target_share = share;
    if (has_peer(what) && dtype != DType::kBFloat16) row.target_speedup["torch_compile"] = 1.0;
    report.add(std::move(row));
  };
  const Tensor x = bench::normal_tensor(shape, dtype, 1), dy = bench::normal_tensor(shape, dtype, 2);
  const Tensor alpha = bench::normal_tensor({c}, dtype, 3);
  add("forward", 2 * bytes, one.forward_share, [&] { ops::prelu(x, alpha, {.layout = layout}); });
  add("backward", 3 * bytes, kBackwardShare, [&] { ops::vjp::prelu(dy, x, alpha, layout); });
  add(kGradX, 3 * bytes, kBackwardShare, [&] { ops::vjp::prelu_x(dy, x, alpha, layout); });
  add("forward+backward", 5 * bytes, std::nullopt, [&] {
    ops::prelu(x, alpha, {.layout = layout});
    ops::vjp::prelu(dy, x, alpha, layout);
  });
  if (dtype == DType::kFloat32) return;
  const Tensor wide = bench::normal_tensor({c}, DType::kFloat32, 3);
  add(kWideForward, 2 * bytes, std::nullopt, [&] { ops::prelu(x, wide, {.layout = layout}); });
  add(kWideBackward, 3 * bytes, std::nullopt, [&] { ops::vjp::prelu(dy, x, wide, layout); });
}

void run(bench::Report& report) {
  const NoGrad no_grad;
  for (const Case& one : kCases) {
    if (report.quick() && one.shape[2] != 28 && one.shape[2] != 56) continue;
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) run_case(report, one, dtype, layout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(argc, argv, run);
}
