// The loader itself: where it stands, and who may call it.
#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/exclusive_use.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/loader/batch_assembler.h>
#include <sinter/nn/data/loader/batch_workers.h>

namespace sinter::nn::data {
namespace {

constexpr const char* kOneLoaderAThread =
    "let one thread take the batches, or give each a loader with its own shard";

}  // namespace

int64_t Batch::size() const {
  if (labels.defined()) return labels.numel();
  for (const Tensor* const part : {&images, &masks}) {
    if (part->defined()) return part->size(0);
  }
  return values.empty() ? 0 : values.begin()->second.size(0);
}

const Tensor& Batch::operator[](const std::string& name) const {
  const auto found = values.find(name);
  if (found != values.end()) return found->second;
  std::string names;
  for (const auto& [other, value] : values) names += (names.empty() ? "" : ", ") + other;
  throw_error<InvalidArgument>("[batch] expected the name of a value, of {}, but got {}",
                               names.empty() ? "which there are none" : names, name);
}

struct DataLoader::Impl {
  Impl(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options)
      : assembler(std::make_shared<BatchAssembler>(std::move(dataset), options)) {}

  Batch assemble_here() {
    BatchTask task = assembler->make_task(position.epoch, position.batch);
    assembler->fill_rows(task, 0, task.rows, own_buffers, never);
    assembler->upload(task, own_buffers);
    return assembler->finish(task);
  }

  Batch take_from_workers() {
    if (workers != nullptr && workers->failed()) workers.reset();
    if (workers == nullptr) workers = std::make_unique<BatchWorkers>(assembler, position);
    return workers->take();
  }

  ExclusiveUse::Scope in_use() { return {use, "data_loader", kOneLoaderAThread}; }

  DataLoaderState state() const {
    const DataLoaderOptions& options = assembler->options();
    return {position.epoch,
            position.batch,
            options.seed,
            options.batch_size,
            assembler->dataset().size(),
            assembler->sampler_fingerprint(),
            options.shuffle,
            options.drop_last};
  }

  void check(const DataLoaderState& given) const {
    const DataLoaderState own = state();
    const int64_t batches = assembler->batches_per_epoch();
    SINTER_CHECK(given.seed == own.seed, "[data_loader] expected a state of seed {} but got one of {}",
                 own.seed, given.seed);
    SINTER_CHECK(given.batch_size == own.batch_size,
                 "[data_loader] expected a state of batch size {} but got one of {}", own.batch_size,
                 given.batch_size);
    SINTER_CHECK(given.dataset_size == own.dataset_size,
                 "[data_loader] expected a state of {} samples but got one of {}", own.dataset_size,
                 given.dataset_size);
    SINTER_CHECK(given.sampler == own.sampler,
                 "[data_loader] expected a state of the same sampler but got one of {}",
                 given.sampler == 0 ? "none" : "another");
    SINTER_CHECK(given.shuffle == own.shuffle, "[data_loader] expected a state with shuffle {} but got {}",
                 own.shuffle, given.shuffle);
    SINTER_CHECK(given.drop_last == own.drop_last,
                 "[data_loader] expected a state with drop_last {} but got {}", own.drop_last,
                 given.drop_last);
    SINTER_CHECK(given.epoch >= 0 && given.batch >= 0 && given.batch <= batches,
                 "[data_loader] expected an epoch >= 0 and a batch from 0 to {} but got epoch {}, batch {}",
                 batches, given.epoch, given.batch);
  }

  void move_to(BatchPosition to) {
    workers.reset();
    position = to;
  }

  void start_epoch(int64_t epoch) {
    SINTER_CHECK(epoch >= 0, "[data_loader] expected an epoch >= 0 but got {}", epoch);
    if (epoch == position.epoch && position.batch == 0) return;  // what is read ahead stays
    move_to({epoch, 0});
    restored = false;
  }

  void set_transforms(Transforms transforms) {
    DataLoaderOptions options = assembler->options();
    options.transforms = std::move(transforms);
    auto other = std::make_shared<BatchAssembler>(assembler->dataset_pointer(), options);
    workers.reset();
    other->go_on_counting(*assembler);
    assembler = std::move(other);
  }

  uint64_t begin_loop() {
    const auto scope = in_use();
    return ++loops;
  }

  void check_loop(uint64_t loop) {
    const auto scope = in_use();
    SINTER_CHECK(
        loop == loops,
        "[data_loader] expected one loop at a time but another over this loader has begun within this "
        "one, whose place is lost; loop over a second loader there");
  }

  std::shared_ptr<BatchAssembler> assembler;
  BatchPosition position;  // of the next batch; batch may be the number of batches: the end is to be told
  bool restored = false;   // the next loop goes on from `position`
  uint64_t loops = 0;      // so many have begun
  double wait_seconds = 0;
  WorkerBuffers own_buffers;
  const std::atomic<bool> never = false;
  std::unique_ptr<BatchWorkers> workers;  // null, or working from `position` on
  ExclusiveUse use;
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(dataset), options)) {}

DataLoader::~DataLoader() = default;

std::optional<Batch> DataLoader::next() {
  Impl& impl = *impl_;
  const auto scope = impl.in_use();
  if (impl.position.batch == batches_per_epoch()) {
    impl.position = {impl.position.epoch + 1, 0};
    return std::nullopt;
  }
  const auto start = std::chrono::steady_clock::now();
  Batch batch = impl.assembler->options().workers == 0 ? impl.assemble_here() : impl.take_from_workers();
  impl.wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ++impl.position.batch;
  return batch;
}

int64_t DataLoader::batches_per_epoch() const {
  return impl_->assembler->batches_per_epoch();
}

int64_t DataLoader::epoch() const {
  const auto scope = impl_->in_use();
  return impl_->position.epoch;
}

DataLoaderState DataLoader::state() const {
  const auto scope = impl_->in_use();
  return impl_->state();
}

void DataLoader::load_state(const DataLoaderState& state) {
  const auto scope = impl_->in_use();
  impl_->check(state);
  impl_->move_to({state.epoch, state.batch});
  impl_->restored = true;
}

void DataLoader::start_epoch(int64_t epoch) {
  const auto scope = impl_->in_use();
  impl_->start_epoch(epoch);
}

void DataLoader::set_transforms(Transforms transforms) {
  const auto scope = impl_->in_use();
  impl_->set_transforms(std::move(transforms));
}

DataLoader::Iterator DataLoader::begin() {
  {
    const auto scope = impl_->in_use();
    if (impl_->position.batch > 0 && !impl_->restored) impl_->start_epoch(impl_->position.epoch + 1);
    impl_->restored = false;
  }
  return Iterator(this);
}

DataLoader::Iterator::Iterator(DataLoader* loader)
    : loader_(loader), loop_(loader->impl_->begin_loop()), batch_(loader->next()) {}

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  loader_->impl_->check_loop(loop_);
  batch_ = loader_->next();
  return *this;
}

double DataLoader::wait_seconds() const {
  return impl_->wait_seconds;
}

int64_t DataLoader::damaged_samples() const {
  return impl_->assembler->damaged_samples();
}

std::string DataLoader::decoder_name() const {
  return impl_->assembler->decoder();
}

int64_t DataLoader::hardware_decoded() const {
  return impl_->assembler->hardware_decoded();
}

const Dataset& DataLoader::dataset() const {
  return impl_->assembler->dataset();
}

}  // namespace sinter::nn::data
