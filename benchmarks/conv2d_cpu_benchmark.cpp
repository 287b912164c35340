// Times the convolutions of a small residual network for 32x32 images (batch 128) and for 8x8 digits (batch
// 64) on the CPU: forward, gradient of the input and gradient of the filters, NCHW and NHWC. The counter is
// in FLOP/s.
#include <array>
#include <string>

#include <benchmark/benchmark.h>

#include <sinter/core/op/node.h>
#include <sinter/ops/conv2d/conv2d.h>

namespace {

using sinter::Layout;
using sinter::Tensor;

struct Problem {
  int64_t batch, in, out, size, kernel, stride;
};

constexpr std::array<Problem, 15> kProblems = {{{128, 3, 16, 32, 3, 1},
                                                {128, 16, 16, 32, 3, 1},
                                                {128, 16, 32, 32, 3, 2},
                                                {128, 32, 32, 16, 3, 1},
                                                {128, 32, 64, 16, 3, 2},
                                                {128, 64, 64, 8, 3, 1},
                                                {128, 16, 32, 32, 1, 2},
                                                {128, 32, 64, 16, 1, 2},
                                                {64, 1, 16, 8, 3, 1},
                                                {64, 16, 16, 8, 3, 1},
                                                {64, 16, 32, 8, 3, 2},
                                                {64, 32, 32, 4, 3, 1},
                                                {64, 32, 64, 4, 3, 2},
                                                {64, 64, 64, 2, 3, 1},
                                                {1, 128, 128, 28, 3, 1}}};

enum class Pass { kForward, kGradInput, kGradWeight };

sinter::Shape shape_of(Layout layout, int64_t n, int64_t channels, int64_t height, int64_t width) {
  return layout == Layout::kNCHW ? sinter::Shape{n, channels, height, width}
                                 : sinter::Shape{n, height, width, channels};
}

void run(benchmark::State& state, const Problem& p, Layout layout, Pass pass) {
  const sinter::NoGrad no_grad;
  const int64_t padding = p.kernel / 2;
  const int64_t out_size = (p.size + 2 * padding - p.kernel) / p.stride + 1;
  const sinter::ops::Conv2dOptions options{
      .stride = {p.stride, p.stride}, .padding = {padding, padding}, .layout = layout};
  const Tensor x = Tensor::full(shape_of(layout, p.batch, p.in, p.size, p.size), 0.5);
  const Tensor weight = Tensor::full(shape_of(layout, p.out, p.in, p.kernel, p.kernel), 0.25);
  const Tensor dy = Tensor::full(shape_of(layout, p.batch, p.out, out_size, out_size), 0.125);
  for (auto _ : state) {
    Tensor result;
    switch (pass) {
      case Pass::kForward:
        result = sinter::ops::conv2d(x, weight, {}, options);
        break;
      case Pass::kGradInput:
        result = sinter::ops::vjp::conv2d_input(dy, weight, {p.size, p.size}, options);
        break;
      case Pass::kGradWeight:
        result = sinter::ops::vjp::conv2d_weight(dy, x, {p.kernel, p.kernel}, options);
        break;
    }
    benchmark::DoNotOptimize(result.raw_data());
  }
  const double products = static_cast<double>(dy.numel() * p.in * p.kernel * p.kernel);
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * products, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    for (const Problem& p : kProblems) {
      for (const auto& [pass, name] :
           {std::pair(Pass::kForward, "forward"), std::pair(Pass::kGradInput, "grad_input"),
            std::pair(Pass::kGradWeight, "grad_weight")}) {
        const std::string title = fmt::format("{}/n{}_{}to{}_{}x{}_k{}_s{}/{}", to_string(layout), p.batch,
                                              p.in, p.out, p.size, p.size, p.kernel, p.stride, name);
        benchmark::RegisterBenchmark(title.c_str(), run, p, layout, pass)
            ->UseRealTime()
            ->Unit(benchmark::kMicrosecond)
            ->MinTime(0.1);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
