// Batch normalisation with what is fused into it, forward and backward each, over the shapes of
// docs/kernels/batch_norm.md.
#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/batch_norm_act/batch_norm_act.h>
#include <sinter/ops/common/op_support.h>

#include "common/gpu_bench.h"

using namespace sinter;

namespace {

/// What follows the normalisation.
enum class Tail { kNone, kRelu, kPRelu, kAddRelu, kAddNormRelu };

std::string name_of(Tail tail) {
  switch (tail) {
    case Tail::kNone:
      return "BN";
    case Tail::kRelu:
      return "BN+ReLU";
    case Tail::kPRelu:
      return "BN+PReLU";
    case Tail::kAddRelu:
      return "BN+Add+ReLU";
    default:
      return "BN+BN+Add+ReLU";
  }
}

struct Case {
  Tail tail;
  std::array<int64_t, 4> nchw;
  DType dtype;
  Layout layout;
  bool two_gradients = false;
  bool has_target = false;
};

std::vector<Case> cases() {
  using enum Tail;
  using enum Layout;
  constexpr DType f32 = DType::kFloat32, f16 = DType::kFloat16, bf16 = DType::kBFloat16;
  std::vector<Case> all;
  for (const std::array<int64_t, 4>& shape :
       {std::array<int64_t, 4>{16, 32, 112, 112}, {256, 256, 56, 56}, {256, 1024, 14, 14}}) {
    for (const DType dtype : {f32, f16, bf16}) {
      for (const Layout layout : {kNCHW, kNHWC}) {
        for (const Tail tail : {kRelu, kAddRelu})
          all.push_back({tail, shape, dtype, layout, false, dtype != bf16});
      }
    }
  }
  // ResNet-50's other places, CIFAR's ResNet-18 at batch 512, iResNet-50 at batch 128.
  all.push_back({kAddRelu, {256, 256, 56, 56}, f16, kNHWC, true});
  all.push_back({kAddNormRelu, {256, 256, 56, 56}, f16, kNHWC, true});
  all.push_back({kRelu, {256, 64, 112, 112}, f16, kNHWC});
  all.push_back({kRelu, {256, 64, 56, 56}, f16, kNHWC});
  all.push_back({kRelu, {256, 128, 28, 28}, f16, kNHWC});
  all.push_back({kRelu, {256, 512, 7, 7}, f16, kNHWC});
  all.push_back({kAddRelu, {256, 2048, 7, 7}, f16, kNHWC});
  all.push_back({kRelu, {256, 512, 7, 7}, f16, kNCHW});
  all.push_back({kRelu, {256, 64, 56, 56}, bf16, kNHWC});
  all.push_back({kPRelu, {128, 64, 112, 112}, f16, kNHWC});
  all.push_back({kNone, {128, 64, 112, 112}, f16, kNHWC});
  for (const std::array<int64_t, 3>& s :
       {std::array<int64_t, 3>{64, 32, 32}, {128, 16, 16}, {256, 8, 8}, {512, 4, 4}}) {
    for (const Tail tail : {kRelu, kAddRelu}) all.push_back({tail, {512, s[0], s[1], s[2]}, f16, kNHWC});
  }
  return all;
}

/// The tensors of one case.
struct Tensors {
  ops::NormParameters norm, addend_norm;
  ops::BatchNormActOptions options;
  Tensor x, addend, alpha, dy, dy2;

  explicit Tensors(const Case& c) {
    const auto [n, channels, h, w] = c.nchw;
    const Shape shape = c.layout == Layout::kNCHW ? Shape{n, channels, h, w} : Shape{n, h, w, channels};
    x = bench::normal_tensor(shape, c.dtype, 1);
    dy = bench::normal_tensor(shape, c.dtype, 2);
    if (c.two_gradients) dy2 = bench::normal_tensor(shape, c.dtype, 3);
    const auto parameters = [channels = channels] {
      const auto full = [&](double value) {
        return Tensor::full({channels}, value, DType::kFloat32, bench::gpu());
      };
      return ops::NormParameters{
          .weight = full(1.0), .bias = full(0.1), .running_mean = full(0.0), .running_var = full(1.0)};
    };
    norm = parameters();
    options.layout = c.layout;
    options.activation = c.tail == Tail::kNone    ? ops::Activation::kNone
                         : c.tail == Tail::kPRelu ? ops::Activation::kPRelu
                                                  : ops::Activation::kRelu;
    if (c.tail == Tail::kPRelu) alpha = Tensor::full({channels}, 0.25, DType::kFloat32, bench::gpu());
    if (c.tail == Tail::kAddRelu || c.tail == Tail::kAddNormRelu)
      addend = bench::normal_tensor(shape, c.dtype, 4);
    if (c.tail == Tail::kAddNormRelu) {
      addend_norm = parameters();
      options.normalize_addend = true;
    }
  }

  std::vector<Tensor> forward(ops::NormBackend backend = ops::NormBackend::kSinter) const {
    static const Op& op = ops::builtin("batch_norm_act");
    ops::BatchNormActOptions wanted = options;
    wanted.backend = backend;
    const std::vector<Tensor> inputs = {x,
                                        norm.weight,
                                        norm.bias,
                                        norm.running_mean,
                                        norm.running_var,
                                        {},
                                        alpha,
                                        addend,
                                        addend_norm.weight,
                                        addend_norm.bias,
                                        addend_norm.running_mean,
                                        addend_norm.running_var,
                                        {}};
    if (backend == ops::NormBackend::kCudnn) {
      std::vector<const TensorSpec*> specs;
      for (const Tensor& input : inputs) specs.push_back(input.defined() ? &input.spec() : nullptr);
      wanted.reserve_bytes = ops::norm_reserve_bytes(specs, wanted);
    }
    return call(op, inputs, wanted);
  }
  ops::BatchNormActGrads backward(const std::vector<Tensor>& outputs,
                                  ops::NormBackend backend = ops::NormBackend::kSinter) const {
    const bool two = options.normalize_addend, on_cudnn = backend == ops::NormBackend::kCudnn;
    const ops::BatchNormActGradOptions grad_options{.addend_grad = addend.defined(),
                                                    .layout = options.layout,
                                                    .activation = options.activation,
                                                    .normalize_addend = two,
                                                    .backend = backend};
    const bool masked = options.activation != ops::Activation::kNone || on_cudnn;
    return ops::batch_norm_act_grad(
        x, {norm.weight, norm.bias, outputs[1], outputs[2]}, dy, dy2, masked ? outputs[3] : Tensor(),
        grad_options, alpha, two ? addend : Tensor(),
        two ? ops::NormState{addend_norm.weight, addend_norm.bias, outputs[4], outputs[5]}
            : ops::NormState{});
  }
};

/// Bytes that each direction moves at least, as docs/kernels/batch_norm.md counts them.
double forward_bytes(const Case& c, double bytes, double mask) {
  double tensors = 3.0;  // the statistics read x; the map reads it again and writes y
  if (c.tail == Tail::kAddRelu) tensors += 1.0;
  if (c.tail == Tail::kAddNormRelu) tensors += 2.0;
  return tensors * bytes + (c.tail == Tail::kNone ? 0.0 : mask);
}
double backward_bytes(const Case& c, double bytes, double mask) {
  double tensors = 5.0, masks = c.tail == Tail::kNone ? 0.0 : 2.0;  // x and dy twice, dx
  if (c.tail == Tail::kAddRelu) {
    tensors += c.two_gradients ? 2.0 : 1.0;  // dz is written, and read in place of dy and the mask
    masks = 1.0;
  }
  if (c.tail == Tail::kAddNormRelu) tensors += c.two_gradients ? 5.0 : 3.0;  // the addend twice, its gradient
  return tensors * bytes + masks * mask;
}

/// cuDNN's fused kernels can run the case.
bool has_cudnn(const Case& c) {
  return c.dtype == DType::kFloat16 && c.layout == Layout::kNHWC && !c.two_gradients &&
         (c.tail == Tail::kNone || c.tail == Tail::kRelu || c.tail == Tail::kAddRelu);
}

void measure(bench::Report& report, const Case& c) {
  const auto [n, channels, h, w] = c.nchw;
  const std::string shape =
      fmt::format("{}{} ({},{},{},{})", name_of(c.tail), c.two_gradients ? " dy+dy2" : "", n, channels, h, w);
  const std::string dtype(to_string(c.dtype)), layout(to_string(c.layout));
  const std::string names[] = {"forward " + shape, "backward " + shape, "forward+backward " + shape};
  // Forward does not know how many gradients there will be.
  const auto wants = [&](int direction) {
    return (direction == 1 || !c.two_gradients) &&
           report.wants("batch_norm", names[direction], dtype, layout);
  };
  if (!wants(0) && !wants(1) && !wants(2)) return;
  const NoGrad no_grad;
  const Tensors tensors(c);
  const double bytes = static_cast<double>(tensors.x.spec().bytes());
  const double mask = static_cast<double>(tensors.x.numel()) / 8.0;
  const auto add = [&](int direction, double minimum, const std::function<double(ops::NormBackend)>& time) {
    if (!wants(direction)) return;
    bench::Row row{.suite = "batch_norm", .name = names[direction], .dtype = dtype, .layout = layout};
    row.us = time(ops::NormBackend::kSinter);
    row.minimum_bytes = minimum;
    if (has_cudnn(c)) {
      row.peers_us["cudnn"] = time(ops::NormBackend::kCudnn);
      row.target_speedup["cudnn"] = 1.0;
    }
    if (c.has_target && direction < 2) row.target_share = 0.9;
    if (c.has_target && direction == 2) row.target_speedup["torch_compile"] = 1.0;
    report.add(std::move(row));
  };
  add(0, forward_bytes(c, bytes, mask),
      [&](ops::NormBackend backend) { return bench::time_cold([&] { tensors.forward(backend); }); });
  add(1, backward_bytes(c, bytes, mask), [&](ops::NormBackend backend) {
    const std::vector<Tensor> outputs = tensors.forward(backend);
    return bench::time_cold([&] { tensors.backward(outputs, backend); });
  });
  add(2, forward_bytes(c, bytes, mask) + backward_bytes(c, bytes, mask), [&](ops::NormBackend backend) {
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
