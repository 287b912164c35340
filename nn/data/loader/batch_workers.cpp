#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/loader/batch_workers.h>

namespace sinter::nn::data {
namespace {

using Clock = std::chrono::steady_clock;

struct Flight {
  bool begun = false;  // the task is there
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

struct Worker {
  WorkerBuffers buffers;
  std::thread thread;
  bool ended = false;  // nothing is left for its thread to do
};

/// Rows of a piece: small enough that workers share a batch evenly, large enough that taking a piece costs
/// nothing beside filling it.
int64_t rows_of_piece(const DataLoaderOptions& options) {
  constexpr int64_t kMostRows = 64;
  return std::clamp<int64_t>(options.batch_size / (4 * std::max<int64_t>(options.workers, 1)), 1, kMostRows);
}

}  // namespace

struct BatchWorkers::Shared {
  Shared(std::shared_ptr<BatchAssembler> given, BatchPosition first)
      : assembler(std::move(given)), scheduled(first), piece_rows(rows_of_piece(assembler->options())) {}

  const DataLoaderOptions& options() const { return assembler->options(); }
  // The CPU's work is done where the batch was read. A GPU's belongs on the consumer's stream.
  bool finishes_on_worker() const { return options().device.is_cpu(); }

  /// What a thread does. `self` keeps everything alive.
  static void run(const std::shared_ptr<Shared>& self, Worker& worker) {
    /// Also when the thread is unwound by pthread_exit.
    struct AtEnd {
      Shared& shared;
      Worker& worker;
      ~AtEnd() { shared.end(worker); }
    } at_end{*self, worker};
    const SerialGuard serial;  // the pool's threads are for those who compute
    try {
      self->work(worker);
    } catch (...) {
      const std::exception_ptr reason = std::current_exception();
      if (reason == nullptr) {  // pthread_exit and its like unwind without an exception, and must go on
        self->fail(std::make_exception_ptr(
            Error(fmt::format("[data_loader] a worker's thread was ended while it read sample {}",
                              worker.buffers.reading.sample()))));
        throw;
      }
      self->fail(reason);
    }
  }

  void work(Worker& worker) {
    while (const std::optional<Piece> piece = next_piece()) {
      assembler->fill_rows(piece->flight->task, piece->begin, piece->end, worker.buffers, stop);
      finish(*piece, worker.buffers);
    }
  }

  // Waits for something to do; none: the workers are to stop.
  std::optional<Piece> next_piece() {
    std::unique_lock lock(mutex);
    for (;;) {
      if (stop) return std::nullopt;
      for (const std::shared_ptr<Flight>& flight : flights) {
        if (!flight->begun) break;  // in a moment it is; what comes behind is not wanted before
        if (flight->next_row == flight->task.rows) continue;
        const int64_t begin = flight->next_row;
        flight->next_row = std::min(begin + piece_rows, flight->task.rows);
        return Piece{flight, begin, flight->next_row};
      }
      if (static_cast<int64_t>(flights.size()) < options().prefetch) {
        begin_flight(lock);
      } else if (const int64_t epoch = scheduled.epoch + (scheduled.batch > 0 ? 1 : 0); epoch > prepared) {
        prepared = epoch;
        lock.unlock();
        assembler->prepare_epoch(epoch);
        lock.lock();
      } else {
        work_ready.wait(lock);
      }
    }
  }

  // Takes the next place in the queue, and makes its task without the lock: a new epoch's order takes a
  // while, and so may memory, in which next() and the other workers go on.
  void begin_flight(std::unique_lock<std::mutex>& lock) {
    const auto flight = flights.emplace_back(std::make_shared<Flight>());
    const BatchPosition position = scheduled;
    advance();
    prepared = std::max(prepared, position.epoch);
    lock.unlock();
    BatchTask task = assembler->make_task(position.epoch, position.batch);
    lock.lock();
    flight->open_rows = task.rows;
    flight->task = std::move(task);
    flight->begun = true;
    work_ready.notify_all();
  }

  void advance() {
    if (++scheduled.batch == assembler->batches_per_epoch()) scheduled = {scheduled.epoch + 1, 0};
  }

  void finish(const Piece& piece, WorkerBuffers& buffers) {
    Flight& flight = *piece.flight;
    {
      const std::lock_guard lock(mutex);
      flight.open_rows -= piece.end - piece.begin;
      if (flight.open_rows > 0 || stop) return;
    }
    // This was the last piece: nobody else touches the flight now.
    assembler->upload(flight.task, buffers);
    if (finishes_on_worker()) flight.batch = assembler->finish(flight.task);
    {
      const std::lock_guard lock(mutex);
      flight.ready = true;
    }
    changed.notify_all();
  }

  // The first error counts; what others meet while they stop does not.
  void fail(std::exception_ptr reason) {
    {
      const std::lock_guard lock(mutex);
      if (!error && !stop) error = std::move(reason);
      stop = true;
    }
    changed.notify_all();
    work_ready.notify_all();
  }

  void end(Worker& worker) {
    {
      const std::lock_guard lock(mutex);
      worker.ended = true;
    }
    changed.notify_all();
  }

  /// Waits until `done` holds, under the lock; gives a sample that takes longer than read_timeout, if one
  /// does before. `waits_for(worker)`: whether this worker's reading counts.
  template <class Done, class WaitsFor>
  std::optional<int64_t> wait(std::unique_lock<std::mutex>& lock, Done done, WaitsFor waits_for) {
    if (options().read_timeout == 0) {
      changed.wait(lock, done);
      return std::nullopt;
    }
    const auto timeout =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options().read_timeout));
    while (!done()) {
      const Clock::time_point now = Clock::now();
      Clock::time_point wake = now + timeout;  // nobody who begins to read now is late before
      for (const auto& worker : workers) {
        const auto since = worker->buffers.reading.since();
        if (!since || !waits_for(*worker)) continue;
        if (*since + timeout <= now) return worker->buffers.reading.sample();
        wake = std::min(wake, *since + timeout);
      }
      changed.wait_until(lock, wake);
    }
    return std::nullopt;
  }

  const std::shared_ptr<BatchAssembler> assembler;
  std::vector<std::unique_ptr<Worker>> workers;

  std::mutex mutex;  // guards what follows; `stop` is also read without it
  std::condition_variable work_ready;
  std::condition_variable changed;              // a batch is ready, an error is there, or a worker has ended
  std::deque<std::shared_ptr<Flight>> flights;  // oldest first
  BatchPosition scheduled;                      // of the next batch to put in flight
  int64_t prepared = -1;                        // the last epoch whose order was asked for
  const int64_t piece_rows;
  std::exception_ptr error;
  bool told = false;  // take() has thrown it
  std::atomic<bool> stop = false;
};

BatchWorkers::BatchWorkers(std::shared_ptr<BatchAssembler> assembler, BatchPosition first)
    : shared_(std::make_shared<Shared>(std::move(assembler), first)) {
  const int count = shared_->options().workers;
  for (int i = 0; i < count; ++i) shared_->workers.push_back(std::make_unique<Worker>());
  for (const auto& worker : shared_->workers) {
    try {
      worker->thread = std::thread([shared = shared_, w = worker.get()] { Shared::run(shared, *w); });
    } catch (...) {
      // The ones that run are stopped; the rest never were.
      for (const auto& other : shared_->workers) {
        if (!other->thread.joinable()) shared_->end(*other);
      }
      shared_->fail(std::current_exception());
      break;
    }
  }
}

BatchWorkers::~BatchWorkers() {
  Shared& shared = *shared_;
  {
    const std::lock_guard lock(shared.mutex);
    shared.stop = true;
  }
  shared.work_ready.notify_all();
  for (const auto& worker : shared.workers) {
    if (!worker->thread.joinable()) continue;
    std::unique_lock lock(shared.mutex);
    const std::optional<int64_t> late = shared.wait(
        lock, [&] { return worker->ended; }, [&](const Worker& other) { return &other == worker.get(); });
    lock.unlock();
    if (late) {
      log::warning("[data_loader] a worker still reads sample {} and is left to itself", *late);
      worker->thread.detach();
    } else {
      worker->thread.join();
    }
  }
}

Batch BatchWorkers::take() {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  const std::optional<int64_t> late = shared.wait(
      lock, [&] { return shared.error || (!shared.flights.empty() && shared.flights.front()->ready); },
      [](const Worker&) { return true; });
  if (late && !shared.error) {
    shared.error = std::make_exception_ptr(
        IoError(fmt::format("[data_loader] sample {} was not read within {} seconds (read_timeout)", *late,
                            shared.options().read_timeout)));
    shared.stop = true;
    shared.work_ready.notify_all();
  }
  if (shared.error) {
    shared.told = true;
    std::rethrow_exception(shared.error);
  }
  // Only the consumer takes flights out, so this one stays if the device fails, for another call.
  const std::shared_ptr<Flight> flight = shared.flights.front();
  lock.unlock();
  Batch batch =
      shared.finishes_on_worker() ? std::move(flight->batch) : shared.assembler->finish(flight->task);
  lock.lock();
  shared.flights.pop_front();
  lock.unlock();
  shared.work_ready.notify_all();
  return batch;
}

bool BatchWorkers::failed() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->told;
}

}  // namespace sinter::nn::data
