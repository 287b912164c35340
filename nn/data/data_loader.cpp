#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/batch_assembler.h>
#include <sinter/nn/data/data_loader.h>

namespace sinter::nn::data {

// Workers take pieces of batches, oldest batch first; a batch is scheduled when a worker finds nothing else
// to do and fewer than `prefetch` are in flight. Scheduling runs on into the next epoch. The consumer takes
// the oldest batch when all its pieces are done. An error stops all workers; they are joined before anything
// starts anew.
struct DataLoader::Impl {
  struct Flight {
    BatchTask task;
    int64_t next_row = 0;   // rows from here on are not taken yet
    int64_t open_rows = 0;  // not filled yet
    bool ready = false;     // on its way to the device; on the CPU, `batch` is there
    Batch batch;
  };
  struct Piece {
    std::shared_ptr<Flight> flight;
    int64_t begin = 0;
    int64_t end = 0;
  };
  struct Position {
    int64_t epoch = 0;
    int64_t batch = 0;
  };

  Impl(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options)
      : assembler(std::move(dataset), options) {
    // Small enough that workers share a batch evenly, large enough that taking a piece costs nothing beside
    // filling it.
    constexpr int64_t kMostRows = 64;
    if (options.workers > 0) {
      piece_rows = std::clamp<int64_t>(options.batch_size / (4 * int64_t{options.workers}), 1, kMostRows);
    }
  }
  ~Impl() { stop_workers(); }

  Position advanced(Position from) const {
    return from.batch + 1 < assembler.batches_per_epoch() ? Position{from.epoch, from.batch + 1}
                                                          : Position{from.epoch + 1, 0};
  }

  Batch assemble_here() {
    BatchTask task = assembler.make_task(position.epoch, position.batch);
    assembler.fill_rows(task, 0, task.rows, own_buffers, stop);
    assembler.upload(task);
    return assembler.finish(task);
  }

  Batch take_from_workers() {
    if (error_thrown) stop_workers();
    if (threads.empty()) start_workers();
    std::unique_lock lock(mutex);
    batch_ready.wait(lock, [&] { return error || (!flights.empty() && flights.front()->ready); });
    if (error) {
      error_thrown = true;
      std::rethrow_exception(error);
    }
    // Only the consumer takes flights out, so this one stays if the device fails, for another call.
    const std::shared_ptr<Flight> flight = flights.front();
    lock.unlock();
    Batch batch = finishes_on_worker() ? std::move(flight->batch) : assembler.finish(flight->task);
    lock.lock();
    flights.pop_front();
    lock.unlock();
    work_ready.notify_all();
    return batch;
  }

  void start_workers() {
    scheduled = position;
    try {
      for (int i = 0; i < assembler.options().workers; ++i) threads.emplace_back([this] { work(); });
    } catch (...) {
      stop_workers();
      throw;
    }
  }

  // Afterwards no thread is left and nothing is in flight.
  void stop_workers() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    work_ready.notify_all();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    flights.clear();
    error = nullptr;
    error_thrown = false;
    stop = false;
  }

  // The CPU's work is done where the batch was read. A GPU's belongs on the consumer's stream.
  bool finishes_on_worker() const { return assembler.options().device.is_cpu(); }

  void work() {
    const SerialGuard serial;  // the pool's threads are for those who compute
    WorkerBuffers buffers;
    for (;;) {
      try {
        const std::optional<Piece> piece = next_piece();
        if (!piece) return;
        assembler.fill_rows(piece->flight->task, piece->begin, piece->end, buffers, stop);
        finish(*piece);
      } catch (...) {
        fail(std::current_exception());
        return;
      }
    }
  }

  // Waits for something to do; none: the workers are to stop.
  std::optional<Piece> next_piece() {
    std::unique_lock lock(mutex);
    for (;;) {
      if (stop) return std::nullopt;
      for (const std::shared_ptr<Flight>& flight : flights) {
        if (flight->next_row == flight->task.rows) continue;
        const int64_t begin = flight->next_row;
        flight->next_row = std::min(begin + piece_rows, flight->task.rows);
        return Piece{flight, begin, flight->next_row};
      }
      if (static_cast<int64_t>(flights.size()) < assembler.options().prefetch) {
        auto flight = std::make_shared<Flight>();
        flight->task = assembler.make_task(scheduled.epoch, scheduled.batch);
        flight->open_rows = flight->task.rows;
        flights.push_back(std::move(flight));
        scheduled = advanced(scheduled);
        work_ready.notify_all();
        continue;
      }
      work_ready.wait(lock);
    }
  }

  void finish(const Piece& piece) {
    Flight& flight = *piece.flight;
    {
      const std::lock_guard lock(mutex);
      flight.open_rows -= piece.end - piece.begin;
      if (flight.open_rows > 0 || stop) return;
    }
    // This was the last piece: nobody else touches the flight now.
    assembler.upload(flight.task);
    if (finishes_on_worker()) flight.batch = assembler.finish(flight.task);
    {
      const std::lock_guard lock(mutex);
      flight.ready = true;
    }
    batch_ready.notify_one();
  }

  // The first error counts; what others meet while they stop does not.
  void fail(std::exception_ptr reason) {
    {
      const std::lock_guard lock(mutex);
      if (!error && !stop) error = std::move(reason);
      stop = true;
    }
    batch_ready.notify_one();
    work_ready.notify_all();
  }

  BatchAssembler assembler;
  Position
      position;  // of the next batch to hand out; batch may be the number of batches: the end is to be told
  double wait_seconds = 0;
  bool error_thrown = false;  // next() has thrown `error`; the workers are still to be joined
  WorkerBuffers own_buffers;
  int64_t piece_rows = 1;

  std::vector<std::thread> threads;
  std::mutex mutex;  // guards what follows; `stop` is also read without it
  std::condition_variable work_ready;
  std::condition_variable batch_ready;
  std::deque<std::shared_ptr<Flight>> flights;  // oldest first
  Position scheduled;                           // of the next batch to put in flight
  std::exception_ptr error;
  std::atomic<bool> stop = false;
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(dataset), options)) {}

DataLoader::~DataLoader() = default;

std::optional<Batch> DataLoader::next() {
  Impl& impl = *impl_;
  if (impl.position.batch == batches_per_epoch()) {
    impl.position = {impl.position.epoch + 1, 0};
    return std::nullopt;
  }
  const auto start = std::chrono::steady_clock::now();
  Batch batch = impl.assembler.options().workers == 0 ? impl.assemble_here() : impl.take_from_workers();
  impl.wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ++impl.position.batch;
  return batch;
}

int64_t DataLoader::batches_per_epoch() const {
  return impl_->assembler.batches_per_epoch();
}

int64_t DataLoader::epoch() const {
  return impl_->position.epoch;
}

DataLoaderState DataLoader::state() const {
  const DataLoaderOptions& options = impl_->assembler.options();
  return {impl_->position.epoch, impl_->position.batch, options.seed, options.batch_size, dataset().size()};
}

void DataLoader::restore(const DataLoaderState& state) {
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
  impl_->stop_workers();
  impl_->position = {state.epoch, state.batch};
}

void DataLoader::start_epoch(int64_t epoch) {
  DataLoaderState state = this->state();
  state.epoch = epoch;
  state.batch = 0;
  if (epoch == impl_->position.epoch && impl_->position.batch == 0) return;  // what is read ahead stays
  restore(state);
}

double DataLoader::wait_seconds() const {
  return impl_->wait_seconds;
}

int64_t DataLoader::damaged_samples() const {
  return impl_->assembler.damaged_samples();
}

const Dataset& DataLoader::dataset() const {
  return impl_->assembler.dataset();
}

}  // namespace sinter::nn::data
