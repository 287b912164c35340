#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include <sinter/core/base/error.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/event.h>
#include <sinter/nn/job/infer_queue.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/slice/slice.h>

namespace sinter::nn {

namespace {

using Clock = std::chrono::steady_clock;

struct Request {
  Tensor x;
  Stream stream;  // of who submitted it
  Event made;     // of x, there
  Clock::time_point since;
  std::promise<Tensor> promise;
};

/// Whether both may be rows of one batch.
bool fit_together(const Tensor& a, const Tensor& b) {
  if (a.rank() != b.rank() || a.dtype() != b.dtype() || a.device() != b.device()) return false;
  return std::equal(a.shape().begin() + 1, a.shape().end(), b.shape().begin() + 1);
}

Tensor zero_rows(const Tensor& like, int64_t rows) {
  const auto own = like.shape().extents();
  std::vector<int64_t> extents(own.begin(), own.end());
  extents[0] = rows;
  return ops::zeros(Shape(extents), like.dtype(), like.device());
}

std::vector<int64_t> sizes_of(const InferQueueOptions& options) {
  SINTER_CHECK(options.max_batch > 0, "[infer_queue] expected max_batch > 0 but got {}", options.max_batch);
  SINTER_CHECK(options.max_wait_ms >= 0 && options.max_wait_ms <= 1e6,
               "[infer_queue] expected max_wait_ms from 0 to 1e6 but got {}", options.max_wait_ms);
  std::vector<int64_t> sizes = options.batch_sizes;
  if (sizes.empty()) {
    for (int64_t size = 1; size < options.max_batch; size *= 2) sizes.push_back(size);
    sizes.push_back(options.max_batch);
  }
  SINTER_CHECK(sizes.front() > 0 && sizes.back() == options.max_batch &&
                   std::ranges::adjacent_find(sizes, std::greater_equal()) == sizes.end(),
               "[infer_queue] expected growing batch_sizes up to max_batch {} but got {}", options.max_batch,
               fmt::join(sizes, ", "));
  return sizes;
}

}  // namespace

struct InferQueue::Shared {
  Shared(InferJob& runs, const InferQueueOptions& given)
      : job(runs), options(given), sizes(sizes_of(given)), thread([this] { work(); }) {}
  ~Shared() {
    {
      const std::lock_guard lock(mutex);
      ends = true;
    }
    changed.notify_all();
    thread.join();
  }

  void work() {
    for (;;) {
      std::vector<Request> batch = take();
      if (batch.empty()) return;
      try {
        answer(batch);
      } catch (...) {
        for (Request& request : batch) request.promise.set_exception(std::current_exception());
      }
    }
  }

  /// Rows of the oldest request and those that fit to it.
  int64_t waiting_rows() const {
    int64_t rows = 0;
    for (const Request& request : requests) {
      if (fit_together(request.x, requests.front().x)) rows += request.x.size(0);
    }
    return rows;
  }

  /// The requests of the next batch; none at the end.
  std::vector<Request> take() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ends || !requests.empty(); });
    if (requests.empty()) return {};
    const auto until =
        requests.front().since + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double, std::milli>(options.max_wait_ms));
    changed.wait_until(lock, until, [&] { return ends || waiting_rows() >= options.max_batch; });
    std::vector<Request> batch;
    int64_t rows = 0;
    for (auto at = requests.begin(); at != requests.end();) {
      const bool fits = batch.empty() || fit_together(at->x, batch.front().x);
      if (fits && rows + at->x.size(0) > options.max_batch) break;  // its turn comes next
      if (!fits) {
        ++at;
        continue;
      }
      rows += at->x.size(0);
      batch.push_back(std::move(*at));
      at = requests.erase(at);
    }
    return batch;
  }

  void answer(std::vector<Request>& batch) {
    const NoGrad no_grad;
    const Device device = batch.front().x.device();
    const Stream stream = current_stream(device);
    std::vector<Tensor> parts;
    int64_t rows = 0;
    for (const Request& request : batch) {
      request.made.make_wait(stream);
      parts.push_back(request.x);
      rows += request.x.size(0);
    }
    const int64_t size = *std::ranges::lower_bound(sizes, rows);
    if (size > rows) parts.push_back(zero_rows(parts.front(), size - rows));
    const Tensor result = job(parts.size() == 1 ? parts.front() : ops::concat(parts, 0));
    SINTER_CHECK(result.rank() > 0 && result.size(0) == size,
                 "[infer_queue] expected a result with a row for each of {} but got shape {}", size,
                 result.shape());
    std::vector<Tensor> answers;
    int64_t begin = 0;
    for (const Request& request : batch) {
      answers.push_back(ops::slice(result, 0, begin, begin + request.x.size(0)));
      begin += request.x.size(0);
    }
    Event(stream).synchronize();  // those who wait may be on any stream
    for (size_t i = 0; i < batch.size(); ++i) {
      // Who reads on a stream of his own may let go of the answer before that has run.
      if (batch[i].stream.id != stream.id) answers[i].storage()->record_stream(batch[i].stream);
      batch[i].promise.set_value(answers[i]);
    }
  }

  InferJob& job;
  const InferQueueOptions options;
  const std::vector<int64_t> sizes;
  std::mutex mutex;  // guards what follows, but the thread
  std::condition_variable changed;
  std::deque<Request> requests;
  bool ends = false;
  std::thread thread;  // last: it uses all of them
};

InferQueue::InferQueue(InferJob& job, const InferQueueOptions& options)
    : shared_(std::make_unique<Shared>(job, options)) {}

InferQueue::~InferQueue() = default;

std::future<Tensor> InferQueue::submit(const Tensor& x) {
  SINTER_CHECK(x.defined() && x.rank() > 0 && x.size(0) > 0 && x.size(0) <= shared_->options.max_batch,
               "[infer_queue] expected 1 to {} rows but got {}", shared_->options.max_batch,
               x.defined() ? fmt::format("shape {}", x.shape()) : "an undefined tensor");
  const Stream stream = current_stream(x.device());
  Request request{.x = x, .stream = stream, .made = Event(stream), .since = Clock::now(), .promise = {}};
  std::future<Tensor> future = request.promise.get_future();
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->requests.push_back(std::move(request));
  }
  shared_->changed.notify_all();
  return future;
}

}  // namespace sinter::nn
