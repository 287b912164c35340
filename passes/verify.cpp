#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include <sinter/autograd/differentiate.h>
#include <sinter/core/executor/program.h>
#include <sinter/core/op/call_tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/passes/calls/place_of.h>
#include <sinter/passes/verify.h>

namespace sinter::passes {
namespace {

/// Copies of storages, each made once, so that what shared memory still does.
class StorageCopies {
 public:
  Tensor operator()(const Tensor& tensor) {
    std::shared_ptr<Storage>& copy = copies_[tensor.storage().get()];
    if (copy == nullptr) {
      const Storage& storage = *tensor.storage();
      copy = Storage::allocate(storage.bytes(), storage.device());
      copy_bytes(copy->data(), copy->device(), storage.data(), storage.device(), storage.bytes());
    }
    return Tensor::over(copy, tensor.offset_bytes(), tensor.spec());
  }

 private:
  std::map<const Storage*, std::shared_ptr<Storage>> copies_;
};

constexpr const char* kAfterTheStep = " after the step";

/// Names of leaves, those without one by their order.
std::map<const GraphValue*, std::string> leaf_names(const Graph& graph) {
  std::map<const GraphValue*, std::string> names;
  int unnamed = 0;
  for (const GraphValue* leaf : graph.memories()) {
    if (leaf->kind == GraphValue::Kind::kLeaf && leaf->version == 0)
      names[leaf] = leaf->name.empty() ? fmt::format("leaf #{}", unnamed++) : leaf->name;
  }
  return names;
}

std::set<const Storage*> changed_storages(const Graph& graph) {
  std::set<const Storage*> changed;
  for (const GraphNode* node : graph.nodes()) {
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (node->changes(i)) changed.insert(node->input(i)->storage());
    }
  }
  return changed;
}

/// How far apart equal computations in `dtype` may come after as many roundings as a network has. In 16 bit,
/// numbers that the loss has not been scaled for may vanish.
Verifier::Tolerance tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return {1e-9, 1e-10, 0.0, 0x1p-52};
    case DType::kFloat32:
      return {2e-3, 2e-4, 0.0, 0x1p-23};
    case DType::kFloat16:
      return {0.25, 0.025, 1e-6, 0x1p-10};
    case DType::kBFloat16:
      return {0.5, 0.05, 1e-6, 0x1p-7};
    default:
      return {};
  }
}

/// In badly conditioned networks, as of batches of two or of norms over next to nothing, every rounding
/// shows: so many times the largest difference to runs that round otherwise is allowed.
constexpr double kRoundingFactor = 8.0;
constexpr size_t kRoundingRuns = 8;

std::vector<double> doubles(const Tensor& tensor) {
  return tensor.dtype() == DType::kFloat64 ? tensor.to_vector<double>()
                                           : ops::cast(tensor, DType::kFloat64).to_vector<double>();
}

/// `tensor`, each element moved by at most `shake` of itself, or of 1 where it is 0.
Tensor shaken(const Tensor& tensor, double shake, uint64_t seed) {
  if (!is_float(tensor.dtype())) return tensor;
  Generator generator(seed);
  std::vector<double> values = doubles(tensor);
  for (double& value : values) {
    value += shake * (2.0 * generator.uniform() - 1.0) * (value != 0.0 ? value : 1.0);
  }
  return ops::cast(Tensor::from_values(values, tensor.shape(), tensor.device()), tensor.dtype());
}

/// That of the narrowest dtype in which anything is computed.
Verifier::Tolerance tolerance_of(const Graph& graph) {
  Verifier::Tolerance tolerance;
  for (const GraphNode* node : graph.nodes()) {
    for (const GraphValue* value : node->outputs) {
      tolerance = std::max(tolerance, tolerance_of(value->spec.dtype));
    }
  }
  return tolerance;
}

double largest_of(const std::vector<double>& values) {
  double largest = 0.0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const size_t bytes = a.spec().bytes();  // an empty tensor may have no address
  return bytes == 0 || std::memcmp(a.raw_data(), b.raw_data(), bytes) == 0;
}

/// An element with all of its digits.
std::string digits_of(const Tensor& tensor, size_t element) {
  const double value = doubles(tensor)[element];
  return tensor.dtype() == DType::kFloat64 ? fmt::format("{}", value) : fmt::format("{:.9g}", value);
}

/// Throws; `allowed` is how far apart the elements may be, or 0 if they must be the same.
[[noreturn]] void fail(const std::string& name, const Tensor& before, const Tensor& after, size_t element,
                       double allowed) {
  throw_error<InternalError>("[verify] {} is {} at {} with the pass and {} without it{}", name,
                             digits_of(after, element), place_of(before.shape(), element),
                             digits_of(before, element),
                             allowed > 0.0 ? fmt::format(", further apart than {:.3g}", allowed)
                                           : std::string(", but the pass says that it keeps all bits"));
}

void compare_bits(const std::string& name, const Tensor& before, const Tensor& after) {
  if (same_bits(before, after)) return;
  const size_t size = size_of(before.dtype());
  const auto *a = static_cast<const std::byte*>(before.raw_data()),
             *b = static_cast<const std::byte*>(after.raw_data());
  const auto differs = std::mismatch(a, a + before.spec().bytes(), b).first - a;
  fail(name, before, after, static_cast<size_t>(differs) / size, 0.0);
}

bool is_near(double a, double b, double allowed) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= allowed;
}

bool is_within(const Tensor& before, const Tensor& after, double allowed) {
  return std::ranges::equal(doubles(before), doubles(after),
                            [&](double a, double b) { return is_near(a, b, allowed); });
}

void compare_values(const std::string& name, const Tensor& before, const Tensor& after, double allowed) {
  const std::vector<double> a = doubles(before), b = doubles(after);
  for (size_t i = 0; i < a.size(); ++i) {
    if (!is_near(a[i], b[i], allowed)) fail(name, before, after, i, allowed);
  }
}

/// Of those elements that are finite in both.
double largest_difference(const Tensor& x, const Tensor& y) {
  const std::vector<double> a = doubles(x), b = doubles(y);
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(a[i]) && std::isfinite(b[i])) largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

}  // namespace

Verifier::Verifier(std::vector<Tensor> inputs, Device device) : inputs_(std::move(inputs)), device_(device) {}

Verifier::Run Verifier::run(const Graph& graph, const PassContext& context, Shake shake) const {
  const Untraced untraced;
  const NoGrad no_grad;
  StorageCopies copies;
  std::unique_ptr<Graph> twin = graph.clone([&](const Tensor& tensor) { return copies(tensor); });
  const std::map<const GraphValue*, std::string> names = leaf_names(*twin);
  std::map<std::string, Tensor> own;  // the user's tensors
  for (const auto& [leaf, name] : leaf_names(graph)) own[name] = leaf->tensor;
  Run run;
  const size_t outputs = twin->outputs().size();
  for (size_t i = 0; i < outputs; ++i) {
    run.results.push_back({context.training && i == 0 ? "the loss" : fmt::format("output {}", i), {}});
  }
  if (context.training && !context.differentiated && outputs > 0 && twin->outputs()[0].differentiable) {
    Tracer tracer(*twin);
    const Tensor loss = tracer.tensor(twin->outputs()[0]);
    for (const auto& [leaf, gradient] :
         differentiate(tracer, loss, ops::full(loss.shape(), 1.0, loss.dtype(), loss.device()))) {
      run.results.push_back({"the gradient of " + names.at(leaf), {}, true});
      twin->add_output({tracer.use_of(gradient).value, false});
    }
  }
  twin->erase_dead();
  run.tolerance = tolerance_of(*twin);
  const std::set<const Storage*> changed = changed_storages(*twin);
  Program program(std::move(twin), device_, {.capture = false});
  std::vector<Tensor> inputs = inputs_;
  for (Tensor& input : inputs) {
    if (shake.relative > 0.0) input = shaken(input, shake.relative, shake.seed);
  }
  const std::vector<Tensor> values = program.run(inputs);
  for (size_t i = 0; i < values.size(); ++i) run.results[i].value = values[i].to(Device::cpu());
  for (const auto& [leaf, name] : names) {
    if (changed.contains(leaf->tensor.storage().get()))
      run.results.push_back({name + kAfterTheStep, leaf->tensor.to(Device::cpu()), false, own.at(name)});
  }
  synchronize(device_);
  return run;
}

/// A leaf that only the other graph changes stays as it is in this one.
void Verifier::complete(std::vector<Result>& results, const std::vector<Result>& others) {
  for (const Result& other : others) {
    if (other.leaf.defined() && std::ranges::find(results, other.name, &Result::name) == results.end())
      results.push_back({other.name, other.leaf.detach().to(Device::cpu()), false, other.leaf});
  }
}

void Verifier::start(const Graph& graph, const PassContext& context) {
  before_ = run(graph, context, {});
}

void Verifier::check(const Pass& pass, const Graph& graph, const PassContext& context) {
  Run after;
  try {
    after = run(graph, context, {});
  } catch (const InvalidArgument& error) {
    throw_error<InternalError>("[verify] what the pass leaves cannot be run: {}", error.what());
  } catch (const Unsupported& error) {
    throw_error<InternalError>("[verify] what the pass leaves cannot be run: {}", error.what());
  }
  complete(after.results, before_.results);
  complete(before_.results, after.results);
  const bool bits = pass.keeps_bits && (device_.is_cpu() || settings::deterministic());
  const Tolerance tolerance = std::max(before_.tolerance, after.tolerance);
  double largest_gradient = 0.0;
  for (const Result& result : before_.results) {
    if (result.is_gradient) largest_gradient = std::max(largest_gradient, largest_of(doubles(result.value)));
  }
  std::vector<Run> rounded_otherwise;  // `after`, run again: only if it takes that to tell
  const auto rounding_of = [&](const Result& result) {
    while (rounded_otherwise.size() < kRoundingRuns) {
      rounded_otherwise.push_back(
          run(graph, context, Shake{4.0 * tolerance.rounding, rounded_otherwise.size()}));
    }
    double largest = 0.0;
    for (const Run& run : rounded_otherwise) {
      const auto other = std::ranges::find(run.results, result.name, &Result::name);
      if (other != run.results.end())
        largest = std::max(largest, largest_difference(result.value, other->value));
    }
    return largest;
  };
  for (const Result& before : before_.results) {
    const auto found = std::ranges::find(after.results, before.name, &Result::name);
    if (found == after.results.end()) throw_error<InternalError>("[verify] {} is gone", before.name);
    SINTER_ASSERT(found->value.shape() == before.value.shape(), "[verify] {} is {} and was {}", before.name,
                  found->value.spec(), before.value.spec());
    if (bits && found->value.dtype() == before.value.dtype()) {
      compare_bits(before.name, before.value, found->value);
    } else {
      const double least = before.is_gradient
                               ? std::max(tolerance.of_all_gradients * largest_gradient, tolerance.absolute)
                               : tolerance.relative * 1e-3;
      const double allowed =
          std::max({tolerance.relative * largest_of(doubles(before.value)), least, 1e-300});
      if (!is_within(before.value, found->value, allowed)) {
        compare_values(before.name, before.value, found->value,
                       std::max(allowed, kRoundingFactor * rounding_of(*found)));
      }
    }
  }
  before_ = std::move(after);
}

}  // namespace sinter::passes
