#include <atomic>
#include <chrono>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/exclusive_use.h>
#include <sinter/nn/data/batch_assembler.h>
#include <sinter/nn/data/batch_workers.h>
#include <sinter/nn/data/data_loader.h>

namespace sinter::nn::data {
namespace {

constexpr const char* kOneLoaderAThread =
    "let one thread take the batches, or give each a loader with its own shard";

}  // namespace

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

  const std::shared_ptr<BatchAssembler> assembler;
  BatchPosition position;  // of the next batch; batch may be the number of batches: the end is to be told
  bool restored = false;   // the next loop goes on from `position`
  double wait_seconds = 0;
  WorkerBuffers own_buffers;
  const std::atomic<bool> never = false;
  std::vector<int64_t> host_labels;
  std::unique_ptr<BatchWorkers> workers;  // null, or working from `position` on
  ExclusiveUse use;
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(dataset), options)) {}

DataLoader::~DataLoader() = default;

std::optional<Batch> DataLoader::next() {
  Impl& impl = *impl_;
  const ExclusiveUse::Scope scope(impl.use, "data_loader", kOneLoaderAThread);
  if (impl.position.batch == batches_per_epoch()) {
    impl.position = {impl.position.epoch + 1, 0};
    return std::nullopt;
  }
  const auto start = std::chrono::steady_clock::now();
  Batch batch = impl.assembler->options().workers == 0 ? impl.assemble_here() : impl.take_from_workers();
  impl.wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  impl.host_labels =
      batch.labels.device().is_cpu() ? batch.labels.to_vector<int64_t>() : impl.assembler->host_labels();
  ++impl.position.batch;
  return batch;
}

const std::vector<int64_t>& DataLoader::host_labels() const {
  return impl_->host_labels;
}

int64_t DataLoader::batches_per_epoch() const {
  return impl_->assembler->batches_per_epoch();
}

int64_t DataLoader::epoch() const {
  return impl_->position.epoch;
}

DataLoaderState DataLoader::state() const {
  const DataLoaderOptions& options = impl_->assembler->options();
  return {impl_->position.epoch, impl_->position.batch, options.seed, options.batch_size, dataset().size()};
}

void DataLoader::load_state(const DataLoaderState& state) {
  const DataLoaderState own = this->state();
  SINTER_CHECK(state.seed == own.seed, "[data_loader] expected a state of seed {} but got one of {}",
               own.seed, state.seed);
  SINTER_CHECK(state.batch_size == own.batch_size,
               "[data_loader] expected a state of batch size {} but got one of {}", own.batch_size,
               state.batch_size);
  SINTER_CHECK(state.dataset_size == own.dataset_size,
               "[data_loader] expected a state of {} samples but got one of {}", own.dataset_size,
               state.dataset_size);
  SINTER_CHECK(state.epoch >= 0 && state.batch >= 0 && state.batch <= batches_per_epoch(),
               "[data_loader] expected an epoch >= 0 and a batch from 0 to {} but got epoch {}, batch {}",
               batches_per_epoch(), state.epoch, state.batch);
  const ExclusiveUse::Scope scope(impl_->use, "data_loader", kOneLoaderAThread);
  impl_->workers.reset();
  impl_->position = {state.epoch, state.batch};
  impl_->restored = true;
}

void DataLoader::start_epoch(int64_t epoch) {
  DataLoaderState state = this->state();
  state.epoch = epoch;
  state.batch = 0;
  if (epoch == impl_->position.epoch && impl_->position.batch == 0) return;  // what is read ahead stays
  load_state(state);
  impl_->restored = false;
}

DataLoader::Iterator DataLoader::begin() {
  if (impl_->position.batch > 0 && !impl_->restored) start_epoch(impl_->position.epoch + 1);
  impl_->restored = false;
  return Iterator(this);
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
