// Pooling: the layers of residual networks and what usually stands beside them, even and odd planes. The
// least that is moved: every input and every output once.
#include <array>

#include <fmt/format.h>

#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/pool/pool.h>

#include "common/gpu_bench.h"

using namespace sinter;

namespace {

struct Case {
  int64_t batch, channels, height, width;
  int64_t kernel, stride, padding;
};

constexpr Case kMaxPools[] = {
    {256, 64, 112, 112, 3, 2, 1}, {64, 64, 112, 112, 3, 2, 1}, {96, 64, 57, 57, 3, 2, 1},
    {256, 64, 56, 56, 2, 2, 0},   {96, 48, 55, 55, 3, 2, 0},   {64, 256, 28, 28, 3, 1, 1},
    {64, 64, 61, 75, 5, 3, 2},
};
constexpr Case kAvgPools[] = {{256, 64, 56, 56, 2, 2, 0}, {64, 256, 28, 28, 3, 1, 1}};
constexpr std::array<int64_t, 4> kGlobalPools[] = {
    {256, 2048, 7, 7}, {512, 512, 4, 4}, {32, 512, 7, 7}, {64, 256, 56, 56}, {96, 320, 15, 15}};

Shape image_shape(const Case& c, Layout layout) {
  return layout == Layout::kNCHW ? Shape{c.batch, c.channels, c.height, c.width}
                                 : Shape{c.batch, c.height, c.width, c.channels};
}

std::string name_of(const char* op, const Case& c) {
  return fmt::format("{} ({},{},{},{}) k{} s{} p{}", op, c.batch, c.channels, c.height, c.width, c.kernel,
                     c.stride, c.padding);
}

/// `body` reads `inputs` and gives the tensors that it writes.
void add(bench::Report& report, const std::string& name, DType dtype, Layout layout,
         const std::vector<Tensor>& inputs, const std::function<std::vector<Tensor>()>& body) {
  size_t bytes = 0;
  for (const Tensor& tensor : inputs) bytes += tensor.spec().bytes();
  std::vector<Tensor> results = body();
  for (const Tensor& tensor : results) bytes += tensor.spec().bytes();
  report.add({.suite = "pool",
              .name = name,
              .dtype = fmt::format("{}", dtype),
              .layout = std::string(to_string(layout)),
              .us = bench::time_cold([&] { results = body(); }),
              .minimum_bytes = static_cast<double>(bytes)});
}

bool wants(const bench::Report& report, const std::string& name, DType dtype, Layout layout) {
  return report.wants("pool", name, fmt::format("{}", dtype), std::string(to_string(layout)));
}

void run_windows(bench::Report& report, const char* op, const Case& c, DType dtype, Layout layout) {
  const bool is_max = std::string_view(op) == "max_pool2d";
  const ops::PoolAttributes options{.kernel = {c.kernel, c.kernel},
                                    .stride = {c.stride, c.stride},
                                    .padding = {c.padding, c.padding},
                                    .layout = layout};
  const std::string forward = name_of(op, c), backward = name_of(fmt::format("{}_grad", op).c_str(), c);
  const bool wants_forward = wants(report, forward, dtype, layout),
             wants_backward = wants(report, backward, dtype, layout);
  if (!wants_forward && !wants_backward) return;
  const Tensor x = bench::normal_tensor(image_shape(c, layout), dtype);
  const Op& pool = *OpRegistry::instance().find(op);
  const auto run_forward = [&] { return call(pool, {x}, options); };
  const std::vector<Tensor> results = run_forward();  // max_pool2d as a function keeps the indices to itself
  if (wants_forward) add(report, forward, dtype, layout, {x}, run_forward);
  if (!wants_backward) return;
  const Tensor dy = bench::normal_tensor(results[0].shape(), dtype, 2);
  const ops::PoolGradOptions grad_options{options, c.height, c.width};
  if (is_max) {
    add(report, backward, dtype, layout, {dy, results[1]},
        [&] { return std::vector{ops::vjp::max_pool2d(dy, results[1], grad_options)}; });
  } else {
    add(report, backward, dtype, layout, {dy},
        [&] { return std::vector{ops::vjp::avg_pool2d(dy, grad_options)}; });
  }
}

void run_global(bench::Report& report, const std::array<int64_t, 4>& extents, DType dtype, Layout layout) {
  const auto [batch, channels, height, width] = extents;
  const Case c{batch, channels, height, width, 0, 0, 0};
  const std::string shape = fmt::format("({},{},{},{})", batch, channels, height, width);
  const std::string forward = "global_avg_pool2d " + shape, backward = "global_avg_pool2d_grad " + shape;
  if (wants(report, forward, dtype, layout)) {
    const Tensor x = bench::normal_tensor(image_shape(c, layout), dtype);
    add(report, forward, dtype, layout, {x},
        [&] { return std::vector{ops::global_avg_pool2d(x, {.layout = layout})}; });
  }
  if (wants(report, backward, dtype, layout)) {
    const Tensor dy = bench::normal_tensor({batch, channels}, dtype);
    const ops::GlobalPoolOptions options{layout, height, width};
    add(report, backward, dtype, layout, {dy},
        [&] { return std::vector{ops::vjp::global_avg_pool2d(dy, options)}; });
  }
}

void run(bench::Report& report) {
  const NoGrad no_grad;
  ops::global_avg_pool2d(
      bench::normal_tensor({1, 1, 1, 1}));  // the registry is filled at the first call of an op
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    if (report.quick() && dtype == DType::kFloat32) continue;
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      for (const Case& c : kMaxPools) run_windows(report, "max_pool2d", c, dtype, layout);
      for (const Case& c : kAvgPools) run_windows(report, "avg_pool2d", c, dtype, layout);
      for (const auto& extents : kGlobalPools) run_global(report, extents, dtype, layout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(argc, argv, run);
}
