// Samples of elementwise ops: random calls of the op and of its gradient op, from one reference function.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sinter/ops/common/elementwise_op.h>
#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {

/// Where samples come from: [low, high), at least `gap` away from each kink of the function.
struct SampleRange {
  double low = -4.0, high = 4.0;
  std::vector<double> kinks = {};
  double gap = 0.05;
};

/// Where y or dy/dx are sums that may cancel: the size of their terms, see OpSamples::term_size.
struct ElementwiseTerms {
  std::function<double(const OpSample&, size_t output)> y = {};
  double slope = 0.0;
};

struct ElementwiseSamples {
  std::string op;
  DerivativeReads reads = DerivativeReads::kNothing;
  SampleRange x = {};
  /// y of x, written independently of the functor. Where the gradient op reads x, its reference is the
  /// derivative by differences of this function.
  std::function<long double(long double x, const Attributes&)> reference = {};
  std::function<Attributes(SampleMaker&)> draw = {};  ///< the attributes; null: none
  /// dy/dx as a function of what the gradient op reads, x or y, and where y comes from. Needed where it reads
  /// y alone; good where differences are not exact enough.
  std::function<long double(long double y, const Attributes&)> derivative = {};
  SampleRange y = {};
  ElementwiseTerms terms = {};
};

void add_elementwise_samples(SampleRegistry& registry, const ElementwiseSamples& samples);

using RealFunction = long double (*)(long double);

/// For a functor without attributes whose derivative does not read y alone.
template <template <class> class F>
void add_samples(SampleRegistry& registry, const SampleRange& x, RealFunction reference,
                 const ElementwiseTerms& terms = {}) {
  static_assert(F<double>::kReads != DerivativeReads::kOutput, "give the derivative as a function of y");
  add_elementwise_samples(
      registry, {.op = F<double>::kName,
                 .reads = F<double>::kReads,
                 .x = x,
                 .reference = [reference](long double value, const Attributes&) { return reference(value); },
                 .terms = terms});
}

/// ... whose derivative reads y alone, or is given all the same.
template <template <class> class F>
void add_samples(SampleRegistry& registry, const SampleRange& x, RealFunction reference, const SampleRange& y,
                 RealFunction derivative, const ElementwiseTerms& terms = {}) {
  add_elementwise_samples(
      registry, {.op = F<double>::kName,
                 .reads = F<double>::kReads,
                 .x = x,
                 .reference = [reference](long double value, const Attributes&) { return reference(value); },
                 .derivative = [derivative](long double at, const Attributes&) { return derivative(at); },
                 .y = y,
                 .terms = terms});
}

template <template <class> class F>
using FunctionWith = long double (*)(long double, const F<double>&);

/// For a functor with attributes, which `draw` draws. `derivative`: null, or dy/dx as a function of x.
template <template <class> class F>
void add_samples(SampleRegistry& registry, const SampleRange& x, F<double> (*draw)(SampleMaker&),
                 FunctionWith<F> reference, FunctionWith<F> derivative = nullptr,
                 const ElementwiseTerms& terms = {}) {
  static_assert(F<double>::kReads != DerivativeReads::kOutput, "call add_elementwise_samples");
  const auto with_attributes = [](FunctionWith<F> function) {
    return [function](long double value, const Attributes& attributes) {
      return function(value, attributes.as<F<double>>());
    };
  };
  ElementwiseSamples samples{.op = F<double>::kName,
                             .reads = F<double>::kReads,
                             .x = x,
                             .reference = with_attributes(reference),
                             .draw = draw,
                             .terms = terms};
  if (derivative != nullptr) samples.derivative = with_attributes(derivative);
  add_elementwise_samples(registry, samples);
}

}  // namespace sinter::ops
