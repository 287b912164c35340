// Convolutions that cuDNN has no good kernel for as they are: the first layers of networks, whose images have
// one or three channels, forward and both gradients; and inputs that are views and not aligned.
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/ops/conv2d/conv2d.h>

#include "common/gpu_bench.h"

using namespace sinter;

namespace {

/// x (n, c, size, size), weight (o, c, kernel, kernel).
struct Problem {
  const char* name;
  int64_t n, c, size, o, kernel, stride, padding;
};

constexpr Problem kFirstLayers[] = {
    {"resnet50 stem", 256, 3, 224, 64, 7, 2, 3}, {"3x3 stem, stride 2", 256, 3, 224, 64, 3, 2, 1},
    {"3x3 stem", 128, 3, 112, 64, 3, 1, 1},      {"cifar stem", 512, 3, 32, 64, 3, 1, 1},
    {"patches", 64, 3, 224, 96, 4, 4, 0},        {"digits", 512, 1, 28, 32, 3, 1, 1}};
constexpr Problem kInnerLayer = {"inner", 64, 64, 56, 64, 3, 1, 1};

struct Tensors {
  Tensor x, weight, dy;
  ops::Conv2dOptions options;

  Tensors(const Problem& p, DType dtype)
      : x(bench::normal_tensor({p.n, p.size, p.size, p.c}, dtype, 1)),
        weight(bench::normal_tensor({p.o, p.kernel, p.kernel, p.c}, dtype, 2)),
        options{.stride = {p.stride, p.stride}, .padding = {p.padding, p.padding}, .layout = Layout::kNHWC} {
    dy = bench::normal_tensor(ops::conv2d(x, weight, {}, options).shape(), dtype, 3);
  }
};

std::string case_name(const char* what, const Problem& p) {
  return fmt::format("{} {} ({},{},{},{})", what, p.name, p.n, p.c, p.size, p.size);
}

void add(bench::Report& report, const std::string& name, const std::string& dtype,
         const std::function<void()>& call) {
  if (!report.wants("conv2d", name, dtype, "NHWC")) return;
  report.add(
      {.suite = "conv2d", .name = name, .dtype = dtype, .layout = "NHWC", .us = bench::time_cold(call)});
}

void run_first_layer(bench::Report& report, const Problem& p, DType dtype, const std::string& type) {
  const Tensors t(p, dtype);
  add(report, case_name("forward", p), type, [&] { ops::conv2d(t.x, t.weight, {}, t.options); });
  add(report, case_name("grad_input", p), type, [&] {
    ops::vjp::conv2d_input(t.dy, t.weight, {p.size, p.size}, t.options);
  });
  add(report, case_name("grad_weight", p), type, [&] {
    ops::vjp::conv2d_weight(t.dy, t.x, {p.kernel, p.kernel}, t.options);
  });
}

/// The same values, one element behind an aligned address.
Tensor as_view(const Tensor& tensor) {
  const Tensor room = Tensor::empty({tensor.numel() + 1}, tensor.dtype(), tensor.device());
  const Tensor view =
      Tensor::over(room.storage(), room.offset_bytes() + size_of(tensor.dtype()), tensor.spec());
  copy_bytes(view.raw_data(), view.device(), tensor.raw_data(), tensor.device(), tensor.spec().bytes());
  return view;
}

void run(bench::Report& report) {
  const NoGrad no_grad;
  for (const Problem& p : kFirstLayers) {
    if (report.quick() && p.n > 128) continue;
    run_first_layer(report, p, DType::kFloat16, "float16");
    run_first_layer(report, p, DType::kBFloat16, "bfloat16");
    settings::set_allow_tf32(true);
    run_first_layer(report, p, DType::kFloat32, "tf32");
    settings::set_allow_tf32(false);
  }
  const Tensors t(kInnerLayer, DType::kFloat16);
  const Tensor view = as_view(t.x);
  add(report, case_name("forward", kInnerLayer), "float16",
      [&] { ops::conv2d(t.x, t.weight, {}, t.options); });
  add(report, case_name("forward of a view,", kInnerLayer), "float16",
      [&] { ops::conv2d(view, t.weight, {}, t.options); });
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(argc, argv, run);
}
