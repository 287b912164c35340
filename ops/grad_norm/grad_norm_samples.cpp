#include <cmath>

#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {
namespace {

OpSample make_grad_norm(SampleMaker& maker) {
  OpSample sample;
  for (int64_t tensors = maker.integer(1, 5); tensors > 0; --tensors) {
    // Now and then more than one block or piece of a kernel.
    const Shape shape = maker.chance(0.1) ? Shape{maker.integer(8000, 40000)}
                                          : maker.shape(static_cast<int>(maker.integer(0, 4)));
    sample.inputs.push_back(maker.tensor(shape, -300.0, 300.0));
  }
  const Tensor& last = sample.inputs.back();
  if (maker.chance(0.1) && last.numel() > 0) {
    const double bad = maker.pick({double{INFINITY}, double{NAN}});
    const int64_t place = maker.integer(0, last.numel() - 1);
    dispatch_float(last.dtype(), "grad_norm", [&]<class T> { last.data<T>()[place] = static_cast<T>(bad); });
  }
  return sample;
}

std::vector<ReferenceTensor> grad_norm_reference(const OpSample& sample) {
  ReferenceTensor norm((Shape()));
  long double sum = 0.0;
  for (const Tensor& input : sample.inputs) {
    for (const double value : reference_of(input).values) sum += static_cast<long double>(value) * value;
  }
  norm[0] = static_cast<double>(std::sqrt(sum));
  return {norm};
}

}  // namespace

void register_grad_norm_samples(SampleRegistry& registry);
void register_grad_norm_samples(SampleRegistry& registry) {
  registry.add(
      {.op = "grad_norm", .make = make_grad_norm, .reference = grad_norm_reference, .check_gradient = false});
}

}  // namespace sinter::ops
