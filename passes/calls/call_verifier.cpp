#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <sinter/core/op/call.h>
#include <sinter/core/op/call_tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/ops/batch_norm/batch_norm_call.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/passes/calls/call_verifier.h>
#include <sinter/passes/calls/place_of.h>

namespace sinter::passes {
namespace {

/// Of the result's dtype: half of one is what rounding costs, the rest is for kernels that round in between.
constexpr double kRoundings = 1.5;
/// So many times what one rounding of each input does: sums of n terms take about sqrt(n) roundings.
constexpr double kLongSums = 1024.0, kShortSums = 16.0;
constexpr double kShake = 0x1p-22;
constexpr uint64_t kShakes = 3;

struct Rounding {
  double relative;  // the distance of neighbours at 1
  double least;     // the smallest normal number: below it a kernel may give 0
  double largest;
};

template <class T>
constexpr Rounding rounding_of() {
  using Limits = std::numeric_limits<T>;
  return {static_cast<double>(Limits::epsilon()), static_cast<double>(Limits::min()),
          static_cast<double>(Limits::max())};
}

Rounding rounding_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {0x1p-10, 0x1p-14, 65504.0};
    case DType::kBFloat16:
      return {0x1p-7, 0x1p-126, 0x1.FEp127};
    case DType::kFloat32:
      return rounding_of<float>();
    default:
      return rounding_of<double>();
  }
}

/// The distance of neighbouring numbers of the dtype at `value`.
double step_at(double value, const Rounding& rounding) {
  const double size = std::max(std::abs(value), rounding.least);
  return std::exp2(std::floor(std::log2(size))) * rounding.relative;
}

std::vector<double> doubles(const Tensor& tensor) {
  return (tensor.dtype() == DType::kFloat64 ? tensor : ops::cast(tensor, DType::kFloat64))
      .to_vector<double>();
}

/// Which inputs become float64.
enum class Widening : uint8_t { kAll, kButHalf, kNone };

Tensor widened(const Tensor& tensor, Widening how) {
  const bool keeps = how == Widening::kNone || (how == Widening::kButHalf && is_half(tensor.dtype()));
  if (!is_float(tensor.dtype()) || tensor.dtype() == DType::kFloat64 || keeps) return tensor.clone();
  return ops::cast(tensor, DType::kFloat64);
}

/// Each element moved by a share of itself, up or down.
Tensor shaken(const Tensor& tensor, uint64_t seed) {
  if (!is_float(tensor.dtype()) || is_half(tensor.dtype())) return tensor;
  Generator generator(seed);
  std::vector<double> values = doubles(tensor);
  for (double& value : values) value *= generator.uniform() < 0.5 ? 1.0 - kShake : 1.0 + kShake;
  return ops::cast(Tensor::from_values(values, tensor.shape()), tensor.dtype());
}

/// What the call gives, with attributes of its own or others: outputs, and inputs that it changes.
std::vector<std::vector<double>> run(const GraphNode& node, Attributes attributes,
                                     const std::vector<Tensor>& inputs, Widening how,
                                     std::optional<uint64_t> shake) {
  std::vector<Tensor> given;
  for (const Tensor& input : inputs) {
    Tensor tensor = input.defined() ? widened(input, how) : Tensor();
    if (shake && tensor.defined()) tensor = shaken(tensor, *shake + given.size());
    given.push_back(std::move(tensor));
  }
  // A cast and what fills a tensor say the dtype themselves.
  const DType* const dtype = attributes.find<DType>("dtype");
  if (how == Widening::kAll && dtype != nullptr && is_float(*dtype))
    attributes = attributes.with("dtype", DType::kFloat64);
  // Norms on cuDNN leave bytes that only cuDNN reads, where Sinter's leave a mask: neither is compared.
  const int64_t* const reserve = attributes.find<int64_t>("reserve_bytes");
  if (reserve != nullptr && *reserve > 0)
    attributes = attributes.with("reserve_bytes", int64_t{0}).with("backend", ops::NormBackend::kSinter);
  std::vector<std::vector<double>> results;
  for (const Tensor& output : call(*node.op, given, attributes)) results.push_back(doubles(output));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (node.changes(i)) results.push_back(doubles(given[i]));
  }
  return results;
}

double typical(const std::vector<double>& values) {
  double sum = 0;
  size_t count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    sum += value * value;
    ++count;
  }
  return count == 0 ? 0.0 : std::sqrt(sum / static_cast<double>(count));
}

/// What a kernel that gives `result` rounds away in its computations, relatively. Of a float32 result also
/// where some inputs, as learning rates, are float64.
double computing(const GraphNode& node, DType result) {
  if (result == DType::kFloat64) return 0x1p-53;
  const bool is_product = node.definition().flops != nullptr;
  return is_product && settings::allow_tf32() ? 0x1p-11 : 0x1p-24;
}

/// What a kernel rounds away between its parts, relatively: 16-bit products may be rounded to their dtype
/// before another kernel adds the bias, and that sum before the addend of conv2d_bias_act.
double rounding_between(const GraphNode& node, DType result) {
  if (node.definition().flops == nullptr || !is_half(result)) return 0.0;
  const bool has_addend = node.op->name() == "conv2d_bias_act" && node.input(3) != nullptr;
  const int sums = (node.input(2) != nullptr ? 1 : 0) + (has_addend ? 1 : 0);
  return sums * 0.5 * rounding_of(result).relative;
}

/// What a 16-bit gradient that a kernel has written, and goes on from as written, makes of dx: the addend's,
/// which is g, that of the activation's argument. dx is a linear function of g and of sums over g; kernels
/// take the sums before g is rounded, so that dx is off by half a step of g times what it has to do with that
/// element: dx / g where statistics are constants. Without a sum or a slope g is dy or 0, and not rounded.
std::vector<double> off_by_written_gradient(const GraphNode& node, const std::vector<Tensor>& inputs,
                                            Widening how, const std::vector<double>& g) {
  using In = ops::NormActGradInput;
  const auto& options = node.attributes.as<ops::BatchNormActGradOptions>();
  const bool rounds = node.input(In::kDy2) != nullptr || options.activation == ops::fused::Activation::kPRelu;
  if (!is_half(inputs[In::kX].dtype()) || !options.addend_grad || options.normalize_addend || !rounds)
    return {};
  std::vector<double> off = run(node, node.attributes.with("training", false), inputs, how,
                                std::nullopt)[ops::NormActGradOutput::kDx];
  const Rounding rounding = rounding_of(inputs[In::kX].dtype());
  for (size_t i = 0; i < off.size(); ++i) {
    const double factor = std::abs(off[i] / g[i]);
    off[i] = std::isfinite(factor) ? factor * 0.5 * step_at(g[i], rounding) : 0.0;
  }
  return off;
}

/// How many roundings of numbers near 1 are in a result, however near to 0 that is. Cross-entropy has the
/// logarithm of a sum in which the largest term is exp(0) = 1 and each of the others costs a rounding of the
/// sum; its gradient the probability and the target, both up to 1, times the loss's gradient.
double roundings_at_one(const GraphNode& node, const std::vector<Tensor>& inputs) {
  const std::string& op = node.op->name();
  if (op == "cross_entropy" || op == "shard_log_sums") {
    const auto* const reduction = node.attributes.find<ops::Reduction>("reduction");
    const bool sums = reduction != nullptr && *reduction == ops::Reduction::kSum;
    return static_cast<double>(inputs[0].shape()[1] * (sums ? inputs[0].shape()[0] : 1));
  }
  if (op != "cross_entropy_grad" && op != "shard_cross_entropy_grad") return 0.0;
  double largest = 0.0;
  for (const double dloss : doubles(inputs[3])) largest = std::max(largest, std::abs(dloss));
  return 2.0 * largest;
}

/// By how much each element of a result may be off because of roundings within its kernel of which nothing
/// shows in how the result moves with the inputs.
std::vector<double> rounded_within(const GraphNode& node, const std::vector<Tensor>& inputs, Widening how,
                                   const std::vector<std::vector<double>>& expected, size_t result,
                                   DType dtype) {
  using Out = ops::NormActGradOutput;
  std::vector<double> off;
  if (node.op->name() == "batch_norm_act_grad" && result == Out::kDx)
    off = off_by_written_gradient(node, inputs, how, expected[Out::kDaddend]);
  off.resize(expected[result].size(), roundings_at_one(node, inputs) * computing(node, dtype));
  return off;
}

/// One result against the reference.
class Comparison {
 public:
  Comparison(const GraphNode& node, const Tensor& result, std::vector<double> expected)
      : rounding_(rounding_of(result.dtype())),
        computing_(computing(node, result.dtype())),
        between_(rounding_between(node, result.dtype())),
        shape_(result.shape()),
        got_(doubles(result)),
        expected_(std::move(expected)),
        typical_(typical(expected_)) {}

  size_t size() const { return got_.size(); }
  bool is_near() const {
    for (size_t i = 0; i < got_.size(); ++i) {
      if (distance(i) > kRoundings * step_at(expected_[i], rounding_)) return false;
    }
    return true;
  }
  /// `moved` is the reference on inputs that were shaken.
  void add_noise(const std::vector<double>& moved) {
    noise_.resize(expected_.size(), 0.0);
    for (size_t i = 0; i < expected_.size(); ++i) {
      const double noise = std::abs(moved[i] - expected_[i]) / kShake;
      if (std::isfinite(noise)) noise_[i] = std::max(noise_[i], noise);
    }
  }
  /// What rounded_within() gives.
  void allow(std::vector<double> within) { within_ = std::move(within); }
  void report(size_t result, CallCheck& found) const {
    const double common = noise_.empty() ? 0.0 : typical(noise_);
    const double factor = computing_ > 0x1p-12 ? kShortSums : kLongSums;
    for (size_t i = 0; i < got_.size(); ++i) {
      const double noise = noise_.empty() ? 0.0 : std::max(noise_[i], common);
      const double allowed = kRoundings * step_at(expected_[i], rounding_) +
                             (factor * computing_ + between_) * noise + (within_.empty() ? 0.0 : within_[i]);
      const double off = distance(i), share = off / allowed;
      if (off == 0.0 || share <= found.share) continue;
      found.share = share;
      found.result = result;
      found.place = place_of(shape_, i);
      found.got = got_[i];
      found.expected = expected_[i];
      found.roundings = off / step_at(std::max(std::abs(expected_[i]), typical_), rounding_);
    }
  }

 private:
  double distance(size_t i) const {
    const double a = got_[i], b = expected_[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) return 0.0;
    const bool overflows = std::abs(b) > rounding_.largest * 0.99;
    if (overflows && (std::isinf(a) || std::isnan(a) || std::abs(a) > rounding_.largest * 0.98)) return 0.0;
    if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
    // What is below the least normal number may be flushed to 0.
    return std::max(0.0, std::abs(a - b) - rounding_.least);
  }

  Rounding rounding_;
  double computing_, between_;
  Shape shape_;
  std::vector<double> got_, expected_;
  double typical_;
  std::vector<double> noise_, within_;
};

}  // namespace

Tensor CallVerifier::copy(const TensorView& view) const {
  if (!view.present) return {};
  Tensor tensor = Tensor::empty({view.shape, view.dtype, Device::cpu()});
  copy_bytes(tensor.raw_data(), Device::cpu(), view.data, device_, tensor.spec().bytes());
  return tensor;
}

void CallVerifier::before(const ProgramCall& /*call*/, std::span<const TensorView> inputs) {
  inputs_.clear();
  for (const TensorView& view : inputs) inputs_.push_back(copy(view));
  synchronize(device_);
}

void CallVerifier::after(const ProgramCall& call, std::span<const TensorView> inputs,
                         std::span<const TensorView> outputs) {
  std::vector<Tensor> results;
  for (const TensorView& view : outputs) results.push_back(copy(view));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (call.node->changes(i)) results.push_back(copy(inputs[i]));
  }
  synchronize(device_);
  CallCheck found;
  found.op = call.node->op->name();
  found.scope = call.node->scope;
  found.kernel = call.detail.empty() ? call.kernel : call.kernel + ": " + call.detail;
  found.call = checks_.size();
  const Untraced untraced;
  const NoGrad no_grad;
  if (call.node->is_collective()) {
    found.why_not = "other processes take part";
  } else {
    check(call, results, found);
  }
  checks_.push_back(std::move(found));
}

void CallVerifier::check(const ProgramCall& call, const std::vector<Tensor>& results,
                         CallCheck& found) const {
  const GraphNode& node = *call.node;
  for (const Widening how : {Widening::kAll, Widening::kButHalf, Widening::kNone}) {
    try {
      const std::vector<std::vector<double>> expected =
          run(node, node.attributes, inputs_, how, std::nullopt);
      std::vector<std::optional<Comparison>> all(results.size());
      bool needs_noise = false;
      for (size_t i = 0; i < results.size(); ++i) {
        // Masks and places of the largest hang on roundings.
        if (!is_float(results[i].dtype()) || results[i].shape().numel() == 0 || expected.size() <= i)
          continue;
        all[i].emplace(node, results[i], expected[i]);
        SINTER_CHECK(all[i]->size() == expected[i].size(), "[verify] the result has another size in float64");
        needs_noise = needs_noise || !all[i]->is_near();
      }
      for (size_t i = 0; needs_noise && i < all.size(); ++i) {
        if (all[i]) all[i]->allow(rounded_within(node, inputs_, how, expected, i, results[i].dtype()));
      }
      for (uint64_t seed = 0; needs_noise && seed < kShakes; ++seed) {
        const std::vector<std::vector<double>> moved =
            run(node, node.attributes, inputs_, how, 1 + seed * 1000);
        for (size_t i = 0; i < all.size(); ++i) {
          if (all[i]) all[i]->add_noise(moved[i]);
        }
      }
      for (size_t i = 0; i < all.size(); ++i) {
        if (all[i]) all[i]->report(i, found);
      }
      found.why_not.clear();
      return;
    } catch (const Error& error) {
      found.why_not = error.what();
    }
  }
}

const CallCheck* CallVerifier::first_wrong() const {
  const auto found = std::ranges::find_if(checks_, &CallCheck::is_wrong);
  return found == checks_.end() ? nullptr : &*found;
}

std::string to_string(const CallCheck& check) {
  return fmt::format(
      "call {}, {}{} (kernel {}): result {} is {:.9g} at {} and {:.9g} in float64, {:.3g} roundings apart, "
      "{:.3g} times what is allowed",
      check.call, check.op, check.scope.empty() ? "" : " in " + check.scope, check.kernel, check.result,
      check.got, check.place, check.expected, check.roundings, check.share);
}

}  // namespace sinter::passes
