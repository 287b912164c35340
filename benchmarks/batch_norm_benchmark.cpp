// Batch normalisation with what is fused into it, forward and backward each, over the shapes of
// docs/kernels/batch_norm.md.
#include <sinter/core/op/node.h>

#include "common/gpu_bench.h"
#include "common/norm_case.h"

using namespace sinter;

namespace {

struct Case {
  bench::NormCase norm;
  bool has_target = false;
};

std::vector<Case> cases() {
  using enum bench::NormTail;
  using enum Layout;
  constexpr DType f32 = DType::kFloat32, f16 = DType::kFloat16, bf16 = DType::kBFloat16;
  std::vector<Case> all;
  for (const std::array<int64_t, 4>& shape :
       {std::array<int64_t, 4>{16, 32, 112, 112}, {256, 256, 56, 56}, {256, 1024, 14, 14}}) {
    for (const DType dtype : {f32, f16, bf16}) {
      for (const Layout layout : {kNCHW, kNHWC}) {
        for (const bench::NormTail tail : {kRelu, kAddRelu})
          all.push_back({{tail, shape, dtype, layout}, dtype != bf16});
      }
    }
  }
  // ResNet-50's other places, CIFAR's ResNet-18 at batch 512, iResNet-50 at batch 128.
  all.push_back({{kAddRelu, {256, 256, 56, 56}, f16, kNHWC, true}});
  all.push_back({{kAddNormRelu, {256, 256, 56, 56}, f16, kNHWC, true}});
  all.push_back({{kRelu, {256, 64, 112, 112}, f16, kNHWC}});
  all.push_back({{kRelu, {256, 64, 56, 56}, f16, kNHWC}});
  all.push_back({{kRelu, {256, 128, 28, 28}, f16, kNHWC}});
  all.push_back({{kRelu, {256, 512, 7, 7}, f16, kNHWC}});
  all.push_back({{kAddRelu, {256, 2048, 7, 7}, f16, kNHWC}});
  all.push_back({{kRelu, {256, 512, 7, 7}, f16, kNCHW}});
  all.push_back({{kRelu, {256, 64, 56, 56}, bf16, kNHWC}});
  all.push_back({{kPRelu, {128, 64, 112, 112}, f16, kNHWC}});
  all.push_back({{kNone, {128, 64, 112, 112}, f16, kNHWC}});
  for (const std::array<int64_t, 3>& s :
       {std::array<int64_t, 3>{64, 32, 32}, {128, 16, 16}, {256, 8, 8}, {512, 4, 4}}) {
    for (const bench::NormTail tail : {kRelu, kAddRelu})
      all.push_back({{tail, {512, s[0], s[1], s[2]}, f16, kNHWC}});
  }
  return all;
}

/// Random data, usual parameters.
const bench::NormInputs kInputs = {
    .data = [](const Shape& shape, DType dtype,
               uint64_t which) { return bench::normal_tensor(shape, dtype, which); },
    .parameter = [](int64_t channels, DType dtype, double usual,
                    uint64_t) { return Tensor::full({channels}, usual, dtype, bench::gpu()); }};

/// cuDNN's fused kernels can run the case.
bool has_cudnn(const bench::NormCase& c) {
  using enum bench::NormTail;
  return c.dtype == DType::kFloat16 && c.layout == Layout::kNHWC && !c.two_gradients &&
         (c.tail == kRelu || c.tail == kAddRelu);
}

void measure(bench::Report& report, const Case& one) {
  const bench::NormCase& c = one.norm;
  const auto [n, channels, h, w] = c.nchw;
  const std::string shape = fmt::format("{}{} ({},{},{},{})", to_string(c.tail),
                                        c.two_gradients ? " dy+dy2" : "", n, channels, h, w);
  const std::string dtype(to_string(c.dtype)), layout(to_string(c.layout));
  const std::string names[] = {"forward " + shape, "backward " + shape, "forward+backward " + shape};
  // Forward does not know how many gradients there will be.
  const auto wants = [&](int direction) {
    return (direction == 1 || !c.two_gradients) &&
           report.wants("batch_norm", names[direction], dtype, layout);
  };
  if (!wants(0) && !wants(1) && !wants(2)) return;
  const NoGrad no_grad;
  const bench::NormTensors tensors(c, kInputs);
  const auto add = [&](int direction, double minimum, const std::function<double(ops::NormBackend)>& time) {
    if (!wants(direction)) return;
    bench::Row row{.suite = "batch_norm", .name = names[direction], .dtype = dtype, .layout = layout};
    row.us = time(ops::NormBackend::kSinter);
    row.minimum_bytes = minimum;
    if (has_cudnn(c)) {
      row.peers_us["cudnn"] = time(ops::NormBackend::kCudnn);
      row.target_speedup["cudnn"] = 1.0;
    }
    if (one.has_target && direction < 2) row.target_share = 0.9;
    if (one.has_target && direction == 2) row.target_speedup["torch_compile"] = 1.0;
    report.add(std::move(row));
  };
  add(0, bench::norm_forward_bytes(c),
      [&](ops::NormBackend backend) { return bench::time_cold([&] { tensors.forward(backend); }); });
  add(1, bench::norm_backward_bytes(c), [&](ops::NormBackend backend) {
    const std::vector<Tensor> outputs = tensors.forward(backend);
    return bench::time_cold([&] { tensors.backward(outputs, backend); });
  });
  add(2, bench::norm_forward_bytes(c) + bench::norm_backward_bytes(c), [&](ops::NormBackend backend) {
    return bench::time_cold([&] { tensors.backward(tensors.forward(backend), backend); });
  });
}

void run(bench::Report& report) {
  for (const Case& c : cases()) measure(report, c);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(argc, argv, run);
}
