#include <sinter/ops/common/samples/elementwise_samples.h>

namespace sinter::ops {
namespace {

Shape any_shape(SampleMaker& maker) {
  return maker.chance(0.1) ? Shape{maker.integer(500, 1500)}
                           : maker.shape(static_cast<int>(maker.integer(0, 3)));
}

Tensor draw_values(SampleMaker& maker, const Shape& shape, const SampleRange& range) {
  return maker.tensor_off(shape, range.kinks, range.gap, range.low, range.high);
}

Attributes draw_attributes(SampleMaker& maker, const ElementwiseSamples& samples) {
  return samples.draw ? samples.draw(maker) : Attributes();
}

/// The derivative at x by central differences of sixth order: within 1e-14 of functions that are smooth over
/// a tenth, in long double.
template <class F>
long double difference(const F& function, long double x) {
  constexpr long double h = 0x1p-12L;
  const auto odd = [&](long double distance) { return function(x + distance) - function(x - distance); };
  return (45 * odd(h) - 9 * odd(2 * h) + odd(3 * h)) / (60 * h);
}

OpSamples forward_samples(const ElementwiseSamples& samples) {
  return {.op = samples.op,
          .make =
              [samples](SampleMaker& maker) {
                const Attributes attributes = draw_attributes(maker, samples);
                return OpSample{{draw_values(maker, any_shape(maker), samples.x)}, attributes};
              },
          .reference =
              [samples](const OpSample& sample) {
                ReferenceTensor y = reference_of(sample.inputs[0]);
                for (double& value : y.values) {
                  value = static_cast<double>(samples.reference(value, sample.attributes));
                }
                return std::vector{y};
              },
          .term_size = samples.terms.y};
}

/// What the gradient op reads beside dy.
std::vector<Tensor> draw_saved(SampleMaker& maker, const Shape& shape, const ElementwiseSamples& samples,
                               const Attributes& attributes) {
  if (samples.reads == DerivativeReads::kOutput) return {draw_values(maker, shape, samples.y)};
  const Tensor x = draw_values(maker, shape, samples.x);
  if (samples.reads == DerivativeReads::kInput) return {x};
  const Tensor y = Tensor::empty(shape, maker.dtype());
  const ReferenceTensor at = reference_of(x);
  dispatch_float(maker.dtype(), "samples", [&]<class T> {
    for (int64_t i = 0; i < y.numel(); ++i) {
      y.data<T>()[i] = static_cast<T>(static_cast<double>(samples.reference(at[i], attributes)));
    }
  });
  return {x, y};
}

OpSamples gradient_samples(const ElementwiseSamples& samples) {
  return {.op = samples.op + "_grad",
          .make =
              [samples](SampleMaker& maker) {
                const Attributes attributes = draw_attributes(maker, samples);
                const Shape shape = any_shape(maker);
                std::vector<Tensor> inputs = draw_saved(maker, shape, samples, attributes);
                inputs.push_back(maker.tensor(shape));
                return OpSample{std::move(inputs), attributes};
              },
          .reference =
              [samples](const OpSample& sample) {
                const auto function = [&](long double x) { return samples.reference(x, sample.attributes); };
                const ReferenceTensor saved = reference_of(sample.inputs[0]);
                ReferenceTensor dx = reference_of(sample.inputs.back());
                for (size_t i = 0; i < dx.values.size(); ++i) {
                  const long double at = saved.values[i];
                  const long double slope = samples.derivative ? samples.derivative(at, sample.attributes)
                                                               : difference(function, at);
                  dx.values[i] = static_cast<double>(slope * dx.values[i]);
                }
                return std::vector{dx};
              },
          .term_size = [slope = samples.terms.slope](
                           const OpSample& sample,
                           size_t) { return slope * largest_of(reference_of(sample.inputs.back())); }};
}

}  // namespace

void add_elementwise_samples(SampleRegistry& registry, const ElementwiseSamples& samples) {
  registry.add(forward_samples(samples));
  if (samples.reads != DerivativeReads::kNothing) registry.add(gradient_samples(samples));
}

}  // namespace sinter::ops
