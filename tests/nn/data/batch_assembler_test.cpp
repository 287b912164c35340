// Batches are put together beside each other: one that waits for the device or for memory holds up no other.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/loader/batch_assembler.h>
#include <sinter/nn/data/loader/batch_workers.h>
#include <sinter/nn/data/sample_random.h>

namespace sinter::nn::data {
namespace {

using namespace std::chrono_literals;

/// Where the begin of a batch waits while it is closed, as for a copy to a GPU or for pinned memory.
class Gate {
 public:
  void close() { set(true); }
  void open() { set(false); }
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !closed_; });
  }
  /// False if nobody came within a time that is long enough for everybody.
  bool wait_for_arrival(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return arrived_ >= count; });
  }
  int arrived() {
    const std::lock_guard lock(mutex_);
    return arrived_;
  }

 private:
  void set(bool closed) {
    const std::lock_guard lock(mutex_);
    closed_ = closed;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  int arrived_ = 0;
};

class GatedStaging final : public BatchStaging {
 public:
  GatedStaging(const TransformSplit& split, Gate& gate)
      : BatchStaging(Device::cpu(), split, {}), gate_(gate) {}

 protected:
  void begin(int64_t rows, const Shape& image) override {
    gate_.pass();
    BatchStaging::begin(rows, image);
  }

 private:
  Gate& gate_;
};

class GatedAssembler final : public BatchAssembler {
 public:
  using BatchAssembler::BatchAssembler;
  mutable Gate gate;

 protected:
  std::unique_ptr<BatchStaging> make_staging() const override {
    return std::make_unique<GatedStaging>(split(), gate);
  }
};

/// Images of 2 x 2 pixels that hold their index, which is their label too.
class Numbers final : public Dataset {
 public:
  int64_t size() const override { return 12; }
  void read(int64_t index, Sample& sample, const DecodeHintFunction&) const override {
    sample.image.reshape(2, 2, 1);
    for (uint8_t& pixel : sample.image.pixels) pixel = static_cast<uint8_t>(index);
    sample.label = index;
  }
  const std::vector<std::string>& class_names() const override { return names_; }

 private:
  std::vector<std::string> names_ = std::vector<std::string>(12, "number");
};

class BatchAssemblerTest : public testing::Test {
 protected:
  ~BatchAssemblerTest() override {
    assembler.gate.open();
    for (std::thread& thread : threads) thread.join();
  }
  void fill(BatchTask& task, int64_t begin, int64_t end) {
    WorkerBuffers buffers;
    assembler.fill_rows(task, begin, end, buffers, stop);
  }
  void fill_beside(BatchTask& task, int64_t begin, int64_t end) {
    threads.emplace_back([this, &task, begin, end] { fill(task, begin, end); });
  }
  void end_threads() {
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }

  GatedAssembler assembler{std::make_shared<Numbers>(), {.batch_size = 4}};
  WorkerBuffers own;
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
};

/// Stops where the task of the third batch of the first epoch is made.
class SlowTasks final : public BatchAssembler {
 public:
  using BatchAssembler::BatchAssembler;
  Gate gate;

  BatchTask make_task(int64_t epoch, int64_t batch) override {
    if (epoch == 0 && batch == 2) gate.pass();
    return BatchAssembler::make_task(epoch, batch);
  }
};

TEST(BatchWorkersTest, BatchesAreTakenWhileATaskIsMade) {
  // As where the order of a new epoch is made, or pinned memory.
  for (const int workers : {1, 3}) {
    const auto assembler = std::make_shared<SlowTasks>(
        std::make_shared<Numbers>(), DataLoaderOptions{.batch_size = 4, .workers = workers, .prefetch = 3});
    assembler->gate.close();
    BatchWorkers batches(assembler, {});
    ASSERT_TRUE(assembler->gate.wait_for_arrival(1));
    auto first = std::async(std::launch::async, [&] { return batches.take().labels.to_vector<int64_t>(); });
    const bool in_time = first.wait_for(20s) == std::future_status::ready;
    EXPECT_TRUE(in_time) << "next() waits for a task of a later batch";
    assembler->gate.open();
    EXPECT_EQ(first.get(), (std::vector<int64_t>{0, 1, 2, 3}));
    EXPECT_EQ(batches.take().labels.to_vector<int64_t>(), (std::vector<int64_t>{4, 5, 6, 7}));
    EXPECT_EQ(batches.take().labels.to_vector<int64_t>(), (std::vector<int64_t>{8, 9, 10, 11}));
    EXPECT_EQ(batches.take().labels.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3}));
  }
}

TEST(BatchAssemblerOrders, AreMadeOnceForAllWhoAskAtOnce) {
  BatchAssembler assembler(std::make_shared<Numbers>(), {.batch_size = 4, .shuffle = true, .seed = 9});
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<std::future<EpochOrder>> asked;
    for (int i = 0; i < 4; ++i) {
      asked.push_back(std::async(std::launch::async, [&] { return assembler.make_task(epoch, 0).order; }));
    }
    assembler.prepare_epoch(epoch);
    const EpochOrder order = assembler.make_task(epoch, 1).order;
    EXPECT_EQ(*order, shuffled_indices(12, 9, epoch));
    for (auto& other : asked) EXPECT_EQ(other.get(), order) << "made twice";
  }
}

TEST_F(BatchAssemblerTest, ABatchIsFinishedWhileAnotherWaitsForItsMemory) {
  BatchTask ready = assembler.make_task(0, 0);
  fill(ready, 0, 4);
  assembler.upload(ready, own);
  assembler.gate.close();
  BatchTask waiting = assembler.make_task(0, 1);
  fill_beside(waiting, 0, 4);
  ASSERT_TRUE(assembler.gate.wait_for_arrival(2));

  // What next() and the workers do meanwhile: take the finished batch, and begin a task.
  auto others = std::async(std::launch::async, [&] {
    const Batch batch = assembler.finish(ready);
    const BatchTask third = assembler.make_task(0, 2);
    return batch.labels.to_vector<int64_t>();
  });
  const bool in_time = others.wait_for(20s) == std::future_status::ready;
  EXPECT_TRUE(in_time) << "they wait for the other batch";
  assembler.gate.open();
  EXPECT_EQ(others.get(), (std::vector<int64_t>{0, 1, 2, 3}));
  end_threads();
  assembler.upload(waiting, own);
  EXPECT_EQ(assembler.finish(waiting).labels.to_vector<int64_t>(), (std::vector<int64_t>{4, 5, 6, 7}));
}

TEST_F(BatchAssemblerTest, WorkersOfOneBatchWaitForItsOneBegin) {
  assembler.gate.close();
  BatchTask task = assembler.make_task(0, 0);
  for (int64_t row = 0; row < 4; ++row) fill_beside(task, row, row + 1);
  ASSERT_TRUE(assembler.gate.wait_for_arrival(1));
  std::this_thread::sleep_for(50ms);
  assembler.gate.open();
  end_threads();
  EXPECT_EQ(assembler.gate.arrived(), 1);
  assembler.upload(task, own);
  const Batch batch = assembler.finish(task);
  EXPECT_EQ(batch.labels.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(batch.images.shape(), (Shape{4, 1, 2, 2}));
}

/// An image of 20 x 20 pixels whose values are ten times their column, or what a decoder makes of it at an
/// eighth: 3 x 3 means, the last of which reach beyond the image.
class Ramp final : public Dataset {
 public:
  int64_t size() const override { return 1; }
  void read(int64_t, Sample& sample, const DecodeHintFunction& reduction) const override {
    const int64_t by = reduction(20, 20).by, side = (20 + by - 1) / by;
    sample.image.reshape(side, side, 1);
    for (int64_t i = 0; i < side * side; ++i)
      sample.image.pixels[static_cast<size_t>(i)] = static_cast<uint8_t>(10 * by * (i % side) + 5 * by);
    sample.label = 0;
  }
  const std::vector<std::string>& class_names() const override { return names_; }

 private:
  std::vector<std::string> names_ = {"ramp"};
};

TEST(ReducedDecoding, LeavesTheImageWhereItIs) {
  DataLoader loader(std::make_shared<Ramp>(), {.batch_size = 1, .transforms = {resize(2)}});
  const std::vector<float> values = loader.next()->images.to_vector<float>();
  // Centres at 5 and 15 of 20 columns are at 0.625 and 1.875 of the columns at an eighth, the filter's radius
  // is 1.25 of them.
  const double first = (40 * 0.9 + 120 * 0.3) / 1.2, second = (120 * 0.7 + 200 * 0.5) / 1.2;
  ASSERT_EQ(values.size(), 4u);
  EXPECT_NEAR(255 * values[0], first, 1e-3);
  EXPECT_NEAR(255 * values[1], second, 1e-3);
}

}  // namespace
}  // namespace sinter::nn::data
