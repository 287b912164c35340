#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/tensor/transfer.h>
#include <sinter/nn/data/sample_random.h>
#include <sinter/nn/init/init.h>
#include <sinter/nn/loss/partial_fc.h>
#include <sinter/nn/parallel/data_parallel.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/embedding/take_rows.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/put_rows/put_rows.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>

namespace sinter::nn {
namespace {

// The stream of random numbers that chooses classes; no sample of a data set has this number.
constexpr uint64_t kClassStream = ~uint64_t{1};

// Rows that are drawn, or go between ranks, at a time.
constexpr int64_t kChunk = 4096;

const Communicator* several(const PartialFCOptions& options) {
  return options.communicator != nullptr && options.communicator->size() > 1 ? options.communicator : nullptr;
}

/// The first class of a rank; of the rank behind the last, their number.
int64_t first_of(const Communicator* ranks, int64_t rank, int64_t classes) {
  if (ranks == nullptr) return rank == 0 ? 0 : classes;
  const int64_t size = ranks->size(), share = classes / size;
  return rank * share + std::min(rank, classes % size);
}

int64_t rank_of(const Communicator* ranks) {
  return ranks == nullptr ? 0 : ranks->rank();
}

int64_t checked_classes(int64_t classes, const PartialFCOptions& options) {
  SINTER_CHECK(classes > 0, "[partial_fc] expected a positive number of classes but got {}", classes);
  const int size = options.communicator != nullptr ? options.communicator->size() : 1;
  SINTER_CHECK(classes >= size, "[partial_fc] expected a class for each of {} ranks but got {}", size,
               classes);
  return classes;
}

MarginHead make_head(int64_t dimensions, int64_t sampled, const PartialFCOptions& options) {
  MarginHeadOptions head = options.head;
  head.communicator = several(options);
  const Generator before = default_generator();
  const MarginHead made(dimensions, sampled, head);
  if (head.communicator != nullptr) default_generator() = before;  // the number of rows differs between ranks
  return made;
}

/// The rows that a rank with `own` of the classes works with: as many on all ranks, or all that each has.
int64_t count_sampled(int64_t classes, int64_t own, const PartialFCOptions& options) {
  SINTER_CHECK(options.sample_rate > 0.0 && options.sample_rate <= 1.0,
               "[partial_fc] expected a sample rate in (0, 1] but got {}", options.sample_rate);
  SINTER_CHECK(options.min_classes > 0, "[partial_fc] expected min_classes > 0 but got {}",
               options.min_classes);
  const Communicator* const ranks = several(options);
  const int64_t least_own = ranks != nullptr ? classes / ranks->size() : classes;
  const auto share = static_cast<int64_t>(std::llround(options.sample_rate * static_cast<double>(least_own)));
  const int64_t count = std::max(share, options.min_classes);
  return count < least_own ? count : own;
}

/// Host values on a device, without waiting for it.
Tensor upload(const std::vector<int64_t>& values, Device device) {
  const Tensor host = Tensor::empty_pinned({static_cast<int64_t>(values.size())}, DType::kInt64, device);
  std::ranges::copy(values, host.data<int64_t>());
  return to_async(host, device);
}

/// A copy on the host: a GPU may have no room for a second table.
Tensor host_copy(const Tensor& tensor) {
  return tensor.device().is_cpu() ? ops::copy(tensor) : tensor.to(Device::cpu());
}

/// A set of classes, a bit for each.
class Marks {
 public:
  Marks(std::vector<uint64_t>& words, int64_t classes) : words_(words) {
    words_.assign(static_cast<size_t>((classes + 63) / 64), 0);
  }
  /// Adds a class; false if it was there.
  bool add(int64_t index) {
    uint64_t& word = words_[static_cast<size_t>(index / 64)];
    const uint64_t bit = uint64_t{1} << (index % 64);
    const bool is_new = (word & bit) == 0;
    word |= bit;
    return is_new;
  }
  bool has(int64_t index) const {
    return ((words_[static_cast<size_t>(index / 64)] >> (index % 64)) & 1) != 0;
  }
  /// In rising order.
  void list(std::vector<int64_t>& classes) const {
    classes.clear();
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t rest = words_[i]; rest != 0; rest &= rest - 1) {
        classes.push_back(static_cast<int64_t>(i) * 64 + std::countr_zero(rest));
      }
    }
  }

 private:
  std::vector<uint64_t>& words_;
};

}  // namespace

PartialFC::PartialFC(int64_t dimensions, int64_t classes, const PartialFCOptions& options)
    : ranks_(several(options)),
      classes_(checked_classes(classes, options)),
      first_(first_of(ranks_, rank_of(ranks_), classes)),
      own_(first_of(ranks_, rank_of(ranks_) + 1, classes) - first_),
      width_(dimensions * options.head.sub_centres),
      sampled_(count_sampled(classes, own_, options)),
      seed_(options.seed),
      head_(make_head(dimensions, sampled_, options)) {
  if (ranks_ == nullptr) {
    if (is_partial())
      table_ = init::normal({classes, width_}, 0.0, options.head.init_std, default_generator());
    return;
  }
  const Tensor own = draw_centres(options.head.init_std);
  if (is_partial()) {
    table_ = own;
  } else {
    head_.weight.assign(own);
  }
}

/// This rank's rows of the centres that one process would draw, after which the generator stands alike on
/// all.
Tensor PartialFC::draw_centres(double deviation) const {
  // Numbers come in pairs, each at a place of its own.
  const int64_t begin = first_ * width_, odd = begin % 2, count = own_ * width_;
  const RandomKey all = default_generator().next_on_host(4 * ((classes_ * width_ + 1) / 2));
  Generator generator(RandomKey{all.seed, all.offset + static_cast<uint64_t>(begin / 2)});
  const Tensor drawn = init::normal({odd + count}, 0.0, deviation, generator);
  return ops::reshape(ops::copy(ops::slice(drawn, 0, odd, odd + count)), {own_, width_});
}

void PartialFC::to(Device device) {
  SINTER_CHECK(!in_step_, "[partial_fc] a step has begun: end it before moving the centres");
  head_.to(device);
  if (is_partial()) table_ = table_.to(device);
  for (auto& [name, table] : optimizer_tables_) table = table.to(device);
}

void PartialFC::choose(std::span<const int64_t> labels) {
  Marks marks(marks_, own_);
  int64_t left = sampled_;
  for (const int64_t label : labels) {
    if (label == kNoPositive) continue;
    if (marks.add(label)) --left;
  }
  SINTER_CHECK(
      left >= 0,
      "[partial_fc] the batch has {} classes, but a step works with {}; let min_classes be the size of "
      "a batch",
      sampled_ - left, sampled_);
  data::SampleRandom random(seed_, steps_, kClassStream - static_cast<uint64_t>(rank_of(ranks_)));
  const auto bound = static_cast<uint64_t>(own_);
  const auto draw = [&] { return static_cast<int64_t>(random.below(bound)); };
  if (sampled_ <= own_ / 2) {
    while (left > 0) left -= marks.add(draw()) ? 1 : 0;
    marks.list(chosen_);
    return;
  }
  // Most take part: it is quicker to draw those that do not, and to take all others.
  std::vector<uint64_t> words;
  Marks out(words, own_);
  for (int64_t leave = own_ - sampled_; leave > 0;) {
    const int64_t index = draw();
    if (!marks.has(index) && out.add(index)) --leave;
  }
  chosen_.clear();
  for (int64_t index = 0; index < own_; ++index) {
    if (!out.has(index)) chosen_.push_back(index);
  }
}

std::vector<PartialFC::Rows> PartialFC::optimizer_rows(const Optimizer& optimizer, bool make_tables) {
  std::string name;
  for (const Parameter& parameter : optimizer.parameters()) {
    if (parameter.is_same(head_.weight)) name = parameter.name();
  }
  SINTER_CHECK(!name.empty(), "[partial_fc] the head's weight is not among the optimiser's parameters");
  std::vector<Rows> rows;
  for (const auto& [label, tensor] : optimizer.tensors()) {
    // "momentum.head.weight": the name of the buffer has no dot. Counts of steps are one for all rows.
    const size_t dot = label.find('.');
    if (dot == std::string::npos || label.substr(dot + 1) != name || tensor.rank() != 2) continue;
    const std::string buffer = label.substr(0, dot);
    auto found = std::ranges::find(optimizer_tables_, buffer, &std::pair<std::string, Tensor>::first);
    if (found == optimizer_tables_.end()) {
      if (!make_tables) continue;  // the optimiser has made it since the last step, of zeros
      const TensorSpec& spec = tensor.spec();
      optimizer_tables_.emplace_back(buffer, ops::zeros({own_, width_}, spec.dtype, spec.device));
      found = optimizer_tables_.end() - 1;
    }
    if (found->second.device() != tensor.device()) found->second = found->second.to(tensor.device());
    rows.push_back({tensor, found->second});
  }
  return rows;
}

/// The labels of all ranks, each behind its number, which must be the same: in one exchange, unless there are
/// more of them than ever before.
std::vector<int64_t> PartialFC::gathered(std::span<const int64_t> labels) {
  const size_t count = labels.size();
  while (true) {
    const size_t room = room_, stride = 1 + room;
    std::vector<int64_t> part(stride, kNoPositive), rows, all;
    part[0] = static_cast<int64_t>(count);
    std::ranges::copy(labels.first(std::min(count, room)), part.begin() + 1);
    const std::vector<int64_t> parts =
        ranks_->all_gather(Tensor::from_values(part, {static_cast<int64_t>(stride)})).to_vector<int64_t>();
    for (size_t at = 0; at < parts.size(); at += stride) rows.push_back(parts[at]);
    check_parts("partial_fc", rows, *ranks_);
    if (count > room) {
      room_ = count;
      continue;
    }
    for (size_t at = 0; at < parts.size(); at += stride) {
      const auto first = parts.begin() + static_cast<std::ptrdiff_t>(at + 1);
      all.insert(all.end(), first, first + static_cast<std::ptrdiff_t>(count));
    }
    return all;
  }
}

/// The classes of all ranks' batches as this rank counts its own; kNoPositive: of another rank, or none.
std::vector<int64_t> PartialFC::of_all_ranks(std::span<const int64_t> labels) {
  std::vector<int64_t> all(labels.begin(), labels.end());
  if (ranks_ != nullptr) all = gathered(labels);
  for (int64_t& label : all) {
    if (label == kNoPositive && ranks_ == nullptr) continue;
    SINTER_CHECK(label >= 0 && label < classes_, "[partial_fc] expected labels in [0, {}) but got {}",
                 classes_, label);
    label = label >= first_ && label < first_ + own_ ? label - first_ : kNoPositive;
  }
  return all;
}

Tensor PartialFC::sample(std::span<const int64_t> labels, const Optimizer& optimizer) {
  return sample(std::vector<std::vector<int64_t>>{{labels.begin(), labels.end()}}, optimizer).front();
}

std::vector<Tensor> PartialFC::sample(const std::vector<std::vector<int64_t>>& batches,
                                      const Optimizer& optimizer) {
  SINTER_CHECK(!in_step_, "[partial_fc] a step has begun already: call update() after each");
  SINTER_CHECK(!batches.empty(), "[partial_fc] expected a batch for the step but got none");
  const size_t size = batches.front().size();
  std::vector<int64_t> labels;
  for (const std::vector<int64_t>& batch : batches) {
    SINTER_CHECK(batch.size() == size, "[partial_fc] expected batches of one size but got {} and {} labels",
                 size, batch.size());
    labels.insert(labels.end(), batch.begin(), batch.end());
  }
  const NoGrad no_grad;
  const Device device = head_.weight.tensor().device();
  std::vector<int64_t> own = of_all_ranks(labels);
  if (is_partial()) {
    choose(own);
    for (int64_t& label : own) {
      if (label == kNoPositive) continue;
      label = std::ranges::lower_bound(chosen_, label) - chosen_.begin();
    }
    indices_ = upload(chosen_, device);
    ops::update::take_rows_(head_.weight.master(), table_, indices_);
    head_.weight.refresh_working();
    for (const Rows& rows : optimizer_rows(optimizer, false))
      ops::update::take_rows_(rows.part, rows.table, indices_);
  }
  ++steps_;
  in_step_ = true;
  std::vector<Tensor> of_batches;
  for (size_t i = 0; i < batches.size(); ++i) {  // of each rank, its part of the batch
    std::vector<int64_t> part;
    for (size_t begin = i * size; begin < own.size(); begin += labels.size())
      part.insert(part.end(), own.begin() + static_cast<std::ptrdiff_t>(begin),
                  own.begin() + static_cast<std::ptrdiff_t>(begin + size));
    of_batches.push_back(upload(part, device));
  }
  return of_batches;
}

void PartialFC::update(const Optimizer& optimizer) {
  SINTER_CHECK(in_step_, "[partial_fc] no step has begun");
  const NoGrad no_grad;
  if (is_partial()) {
    ops::index_copy_(table_, 0, indices_, head_.weight.master());
    for (const Rows& rows : optimizer_rows(optimizer, true))
      ops::index_copy_(rows.table, 0, indices_, rows.part);
  }
  in_step_ = false;
}

State PartialFC::state() const {
  SINTER_CHECK(!in_step_, "[partial_fc] a step has begun: end it before taking the state");
  State state;
  const auto keep = [&](const std::string& name, const Tensor& rows) {
    const Tensor all = whole(rows);
    if (all.defined()) state[name] = all;
  };
  if (rank_of(ranks_) == 0) {
    for (const Buffer& average : head_.buffers()) state[average.name()] = host_copy(average.canonical());
  }
  if (!is_partial()) {
    keep("weight", head_.weight.canonical());
    return state;
  }
  keep("weight", table_);
  for (const auto& [name, table] : optimizer_tables_) keep(name, table);
  if (rank_of(ranks_) == 0) state["steps"] = Tensor::scalar(steps_);
  return state;
}

Tensor PartialFC::whole(const Tensor& rows) const {
  const Tensor own = host_copy(rows);
  if (ranks_ == nullptr) return own;
  const size_t row_bytes = static_cast<size_t>(width_) * size_of(own.dtype());
  Tensor all;
  if (ranks_->rank() == 0) all = Tensor::empty({classes_, width_}, own.dtype());
  for (int root = 0; root < ranks_->size(); ++root) {
    const int64_t first = first_of(ranks_, root, classes_), end = first_of(ranks_, root + 1, classes_);
    for (int64_t begin = first; begin < end; begin += kChunk) {
      const int64_t count = std::min(kChunk, end - begin);
      const size_t bytes = static_cast<size_t>(count) * row_bytes;
      const Tensor chunk = Tensor::empty({count, width_}, own.dtype());
      auto* const data = static_cast<std::byte*>(chunk.raw_data());
      if (ranks_->rank() == root) {
        const auto* const from = static_cast<const std::byte*>(own.raw_data());
        std::memcpy(data, from + static_cast<size_t>(begin - first) * row_bytes, bytes);
      }
      ranks_->broadcast_(chunk, root);
      if (!all.defined()) continue;
      std::memcpy(static_cast<std::byte*>(all.raw_data()) + static_cast<size_t>(begin) * row_bytes, data,
                  bytes);
    }
  }
  return all;
}

Tensor PartialFC::local_rows(const Tensor& whole) const {
  SINTER_CHECK((whole.shape() == Shape{classes_, width_}), "[partial_fc] expected shape {} but got {}",
               Shape{classes_, width_}, whole.shape());
  return ops::copy(ops::slice(whole, 0, first_, first_ + own_));
}

void PartialFC::load_state(const State& state) {
  SINTER_CHECK(!in_step_, "[partial_fc] a step has begun: end it before loading a state");
  const auto weight = state.find("weight");
  const Shape shape{classes_, width_};
  SINTER_CHECK(weight != state.end(), "[partial_fc] the state has no 'weight'");
  const std::vector<Buffer> averages = head_.buffers();
  const auto average_of = [&](const std::string& name) {
    return std::ranges::find(averages, name, [](const Buffer& average) { return average.name(); });
  };
  for (const auto& [name, value] : state) {
    if (name == "steps" && is_partial()) continue;
    if (average_of(name) != averages.end()) {
      SINTER_CHECK(value.rank() == 0 && is_float(value.dtype()),
                   "[partial_fc] expected a floating-point scalar '{}' but got {} {}", name, value.dtype(),
                   value.shape());
      continue;
    }
    SINTER_CHECK(name == "weight" || is_partial(),
                 "[partial_fc] the state has '{}': it is of a part of the classes, and this head has all",
                 name);
    SINTER_CHECK(value.shape() == shape && value.dtype() == DType::kFloat32,
                 "[partial_fc] expected '{}' of float32 {} but got {} {}", name, shape, value.dtype(),
                 value.shape());
  }
  const auto steps = state.find("steps");
  SINTER_CHECK(!is_partial() || (steps != state.end() && steps->second.dtype() == DType::kInt64 &&
                                 steps->second.rank() == 0),
               "[partial_fc] expected an int64 scalar 'steps' in the state: without it, it is of a head with "
               "all classes");
  for (const Buffer& average : averages) {
    if (const auto found = state.find(average.name()); found != state.end()) average.assign(found->second);
  }
  if (!is_partial()) return head_.weight.assign(local_rows(weight->second));
  const Device device = table_.device();
  table_ = local_rows(weight->second).to(device);
  steps_ = steps->second.to_vector<int64_t>()[0];
  optimizer_tables_.clear();
  for (const auto& [name, value] : state) {
    if (name != "steps" && name != "weight" && average_of(name) == averages.end())
      optimizer_tables_.emplace_back(name, local_rows(value).to(device));
  }
}

}  // namespace sinter::nn
