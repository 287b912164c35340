#include <algorithm>
#include <cstring>

#include <sinter/core/op/node.h>
#include <sinter/nn/parallel/data_parallel.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::nn {
namespace {

constexpr size_t kBucketBytes = 16u << 20;

/// A number of a tensor's bits (FNV-1a), equal for equal bits.
int64_t checksum(const Tensor& tensor) {
  const Tensor host = tensor.to(Device::cpu());
  const auto* const bytes = static_cast<const unsigned char*>(host.raw_data());
  uint64_t hash = 0xCBF29CE484222325u;
  for (size_t i = 0; i < host.spec().bytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001B3u;
  return static_cast<int64_t>(hash);
}

void reduce(const std::vector<Tensor>& leaves, const Communicator& ranks) {
  std::vector<Tensor> gradients;
  std::vector<int64_t> counts;
  for (const Tensor& leaf : leaves) {
    gradients.push_back(leaf.grad());
    counts.push_back(leaf.numel());
  }
  const Tensor sums =
      ops::update::end_all_reduce(ops::update::begin_all_reduce(gradients, ranks), gradients, ranks);
  const std::vector<int64_t> places = ops::update::bucket_places(counts);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Shape shape = gradients[i].shape();
    const Tensor part = ops::slice(sums, 0, places[i], places[i] + counts[i]);
    leaves[i].set_grad(ops::reshape(part, std::vector<int64_t>(shape.begin(), shape.end())));
  }
}

LabelledTensors masters(const std::vector<Parameter>& parameters) {
  LabelledTensors tensors;
  for (const Parameter& parameter : parameters) tensors.emplace_back(parameter.name(), parameter.master());
  return tensors;
}

}  // namespace

void broadcast_parameters(const LabelledTensors& tensors, const Communicator& ranks) {
  if (ranks.size() == 1) return;
  std::string text;
  for (const auto& [name, tensor] : tensors)
    text += fmt::format("{} {} {};", name, tensor.dtype(), tensor.shape());
  ranks.check_equal(text, "names or shapes of the parameters");
  const NoGrad no_grad;
  for (const auto& [name, tensor] : tensors) ranks.broadcast_(tensor);
}

void broadcast_parameters(const std::vector<Parameter>& parameters, const Communicator& ranks,
                          const std::vector<Parameter>& sharded) {
  const std::vector<Parameter> shared = exclude(parameters, sharded);
  broadcast_parameters(masters(shared), ranks);
  for (const Parameter& parameter : shared) parameter.refresh_working();
}

void broadcast_parameters(const ModuleBase& model, const Communicator& ranks,
                          const std::vector<Parameter>& sharded) {
  broadcast_parameters(model.parameters(), ranks, sharded);
  LabelledTensors buffers;
  for (const Buffer& buffer : model.buffers()) buffers.emplace_back(buffer.name(), buffer.master());
  broadcast_parameters(buffers, ranks);
  for (const Buffer& buffer : model.buffers()) buffer.refresh_working();
}

void check_parameters_equal(const LabelledTensors& tensors, const Communicator& ranks) {
  if (ranks.size() == 1) return;
  std::vector<int64_t> own;
  std::string names;
  for (const auto& [name, tensor] : tensors) {
    own.push_back(checksum(tensor));
    names += name + ";";
  }
  ranks.check_equal(names, "names of the parameters");
  if (own.empty()) return;
  const auto count = static_cast<int64_t>(own.size());
  const auto all = ranks.all_gather(Tensor::from_values(own, {count})).to_vector<int64_t>();
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t which = i % own.size();
    if (all[i] == all[which]) continue;
    throw_error<CommunicationError>("[data_parallel] '{}' of {} differs from that of {}",
                                    tensors[which].first, ranks.describe(static_cast<int>(i / own.size())),
                                    ranks.describe(0));
  }
}

void check_parameters_equal(const std::vector<Parameter>& parameters, const Communicator& ranks,
                            const std::vector<Parameter>& sharded) {
  check_parameters_equal(masters(exclude(parameters, sharded)), ranks);
}

void check_parameters_equal(const ModuleBase& model, const Communicator& ranks,
                            const std::vector<Parameter>& sharded) {
  check_parameters_equal(model.parameters(), ranks, sharded);
}

void check_parts(const char* tag, std::span<const int64_t> rows, const Communicator& ranks) {
  for (size_t other = 1; other < rows.size(); ++other) {
    SINTER_CHECK(rows[other] == rows[0],
                 "[{}] expected equal parts of a batch on all ranks but {} has {} rows and {} has {}; leave "
                 "out a last batch that is not full",
                 tag, ranks.describe(0), rows[0], ranks.describe(static_cast<int>(other)), rows[other]);
  }
}

void check_parts(const char* tag, int64_t rows, const Communicator& ranks) {
  if (ranks.size() == 1) return;
  check_parts(tag, ranks.exchange("the comparison of parts of a batch", {&rows, 1}), ranks);
}

Tensor scale_loss(const Tensor& loss, const Communicator& ranks) {
  return ranks.size() == 1 ? loss : ops::affine(loss, 1.0 / ranks.size(), 0.0);
}

void all_reduce_gradients(const std::vector<Parameter>& parameters, const Communicator& ranks) {
  if (ranks.size() == 1) return;
  const NoGrad no_grad;
  std::string names;
  for (const Parameter& parameter : parameters) {
    const Tensor& gradient = parameter.grad();
    if (gradient.defined())
      names += fmt::format("{} {} {};", parameter.name(), gradient.dtype(), gradient.shape());
  }
  ranks.check_equal(names, "the parameters that have gradients");
  std::vector<Tensor> bucket;
  size_t bytes = 0;
  for (size_t i = parameters.size(); i-- > 0;) {
    const Tensor& leaf = parameters[i].tensor();
    if (!leaf.grad().defined()) continue;
    const bool fits = !bucket.empty() && bytes + leaf.spec().bytes() <= kBucketBytes &&
                      bucket.front().dtype() == leaf.dtype();
    if (!bucket.empty() && !fits) {
      reduce(bucket, ranks);
      bucket.clear();
      bytes = 0;
    }
    bytes += leaf.spec().bytes();
    bucket.push_back(leaf);
  }
  if (!bucket.empty()) reduce(bucket, ranks);
}

std::vector<Parameter> exclude(const std::vector<Parameter>& parameters,
                               const std::vector<Parameter>& sharded) {
  std::vector<Parameter> rest;
  for (const Parameter& parameter : parameters) {
    const auto is_it = [&](const Parameter& other) { return other.is_same(parameter); };
    if (std::ranges::none_of(sharded, is_it)) rest.push_back(parameter);
  }
  return rest;
}

Tensor all_reduce(const Tensor& x, const Communicator& ranks) {
  if (ranks.size() == 1) return x;
  ops::update::check_on_ranks("all_reduce", x.spec(), ranks);
  const NoGrad no_grad;
  const std::vector<Tensor> one = {x};
  const Tensor sums = ops::update::end_all_reduce(ops::update::begin_all_reduce(one, ranks), one, ranks);
  const Shape shape = x.shape();
  return ops::reshape(ops::slice(sums, 0, 0, x.numel()), std::vector<int64_t>(shape.begin(), shape.end()));
}

}  // namespace sinter::nn
