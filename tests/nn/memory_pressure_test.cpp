// What becomes of training when memory runs out - at any allocation, at a limit, or for real - and over
// thousands of steps. Everything runs on the CPU and on a GPU if there is one.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>

#include <unistd.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/nn.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::floats;

/// Settings under which two runs give the same bits.
class Repeatable {
 public:
  Repeatable() {
    settings::set_deterministic(true);
    settings::set_autotune(false);
    set_num_threads(2);  // a convolution's scratch on the CPU grows with them
  }
  ~Repeatable() {
    settings::set_deterministic(deterministic_);
    settings::set_autotune(autotune_);
    set_num_threads(threads_);
  }

 private:
  bool deterministic_ = settings::deterministic(), autotune_ = settings::autotune();
  int threads_ = num_threads();
};

class MemoryPressure : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_available(device)) GTEST_SKIP() << "no GPU";
    release_workspace();
    pool().trim();
  }
  void TearDown() override {
    if (!is_available(device)) return;
    pool().set_byte_limit({});
    pool().fail_allocation(0);
  }

  MemoryPool& pool() const { return backend_of(device).memory_pool(device.index); }
  void release_workspace() const { backend_of(device).workspace(current_stream(device)).release(); }
  size_t live_bytes() const { return pool().stats().live_bytes; }

  const Device device = GetParam();
};

const auto name_of = [](const auto& info) { return std::string(to_string(info.param.type)); };
INSTANTIATE_TEST_SUITE_P(Devices, MemoryPressure, ::testing::Values(Device::cpu(), Device::cuda()), name_of);

/// A residual network in training.
class Training {
 public:
  Training(const ResNetArchitecture& architecture, Device device, int64_t width = 8)
      : model_(architecture, {.classes = 10, .width = width, .layout = Layout::kNHWC, .small_stem = true}),
        device_(device) {
    model_.to(device);
    start_anew();
  }

  /// A new optimiser. In two groups, so that a step that fails between them would be seen.
  void start_anew() {
    optimizer_ = std::make_unique<AdamW>(parameter_groups(model_, {}, {.decay_vectors = false}));
  }

  double step(int64_t batch, int64_t side, int64_t seed) {
    const Tensor images = floats({batch, side, side, 3}, seed).to(device_);
    std::vector<int64_t> classes(static_cast<size_t>(batch));
    for (size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<int64_t>(i) * 7 % 10;
    const Tensor labels = Tensor::from_values(classes, {batch}, device_);
    optimizer_->zero_grad();
    const Tensor loss = CrossEntropyLoss{}(model_(images), labels);
    backward(loss);
    optimizer_->step(0.01);
    optimizer_->zero_grad();
    return loss.item();
  }
  /// What a program does that goes on after an error.
  void recover() { optimizer_->zero_grad(); }

  State state() const {
    State state = model_.state();
    state.merge(optimizer_->state());
    return state;
  }
  void load(const State& state) const { model_.load_state(state); }
  void load_optimizer(const State& state) { optimizer_->load_state(state); }
  State model_state() const { return model_.state(); }
  State optimizer_state() const { return optimizer_->state(); }

 private:
  ResNet model_;
  Device device_;
  std::unique_ptr<Optimizer> optimizer_;
};

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  const Tensor here = tensor.to(Device::cpu());
  synchronize(tensor.device());
  std::vector<std::byte> bytes(here.spec().bytes());
  std::memcpy(bytes.data(), here.raw_data(), bytes.size());
  return bytes;
}

/// Names of the values that are not the same bits.
std::vector<std::string> differences(const State& a, const State& b) {
  std::vector<std::string> names;
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other == b.end() || bytes_of(value) != bytes_of(other->second)) names.push_back(name);
  }
  if (a.size() != b.size()) names.emplace_back("(the number of values)");
  return names;
}

const std::vector<std::string> kNone;

// ---- out of memory

TEST_P(MemoryPressure, EveryAllocationMayFail) {
  const Repeatable repeatable;
  Training training({.blocks = {1, 1}}, device);
  const State initial = training.model_state();
  training.step(3, 12, 0);
  const State expected = training.state();

  // How many allocations a step takes that begins like those below.
  const auto start = [&] {
    training.load(initial);
    training.start_anew();
    release_workspace();
  };
  start();
  const size_t live_before = live_bytes();
  const uint64_t first = pool().stats().allocations;
  training.step(3, 12, 0);
  const uint64_t count = pool().stats().allocations - first;
  ASSERT_GT(count, 100u);

  uint64_t errors = 0;
  for (uint64_t k = 1; k <= count; ++k) {
    SCOPED_TRACE(fmt::format("allocation {} of {}", k, count));
    start();
    pool().fail_allocation(k);
    try {
      training.step(3, 12, 0);
    } catch (const OutOfMemory&) {
      ++errors;
    }
    pool().fail_allocation(0);
    training.recover();
    // The same optimiser goes on; what a failed forward pass leaves in running statistics is put back.
    training.load(initial);
    if (training.optimizer_state().empty()) {
      training.step(3, 12, 0);
      ASSERT_EQ(differences(training.state(), expected), kNone);
    }
    start();
    ASSERT_EQ(live_bytes(), live_before) << "memory leaked";
  }
  // A few may not matter: kernels that can do with less scratch take less.
  EXPECT_GE(errors, count * 9 / 10);
}

TEST_P(MemoryPressure, AnUpdateOfAveragesMayFail) {
  uint64_t errors = 0;
  for (uint64_t k = 1; k <= 6; ++k) {
    const Linear model(1, 1, {.bias = false});
    model.to(device);
    model.weight.assign(Tensor::full({1, 1}, 1.0));
    EMA ema(model, {.decay = 0.5});
    model.weight.assign(Tensor::full({1, 1}, 3.0));
    pool().fail_allocation(k);
    try {
      ema.update();
    } catch (const OutOfMemory&) {
      ++errors;
      pool().fail_allocation(0);
      ema.update();
    }
    pool().fail_allocation(0);
    EXPECT_EQ(ema.state().at("average.weight").item(), 2.0) << "allocation " << k;
    ema.update();
    EXPECT_EQ(ema.state().at("average.weight").item(), 2.5) << "allocation " << k;
  }
  EXPECT_GE(errors, 2u);
}

// The scale grows in the step that fails: a gradient of the old one would be divided by the new.
TEST_P(MemoryPressure, AScaledStepOfTwoKindsOfGroupsMayFail) {
  uint64_t errors = 0;
  for (uint64_t k = 1; k <= 40; ++k) {
    const Sequential model(Linear(2, 2), Linear(2, 1));
    model.to(device);
    SGD sgd(parameter_groups(model, {{.prefix = "1.", .clip = false}}));
    GradScaler scaler({.initial_scale = 64, .growth_interval = 2});
    const Tensor x = Tensor::ones({1, 2}).to(device);
    const auto step = [&](double rate) { scaler.step(sgd, rate, {.max_grad_norm = 100.0}); };
    for (int i = 0; i < 2; ++i) {
      sgd.zero_grad();
      backward(scaler.scale(model(x).sum()));
      if (i == 0) step(0.0);
    }
    const double before = model.parameters()[3].tensor().item();
    pool().fail_allocation(k);
    try {
      step(0.125);
    } catch (const OutOfMemory&) {
      ++errors;
      pool().fail_allocation(0);
      step(0.125);
    }
    pool().fail_allocation(0);
    EXPECT_NEAR(model.parameters()[3].tensor().item() - before, -0.125, 1e-6) << "allocation " << k;
    EXPECT_EQ(scaler.scale(), 128.0) << "allocation " << k;
  }
  EXPECT_GE(errors, 8u);
}

TEST_P(MemoryPressure, TrainingGoesOnWithASmallerBatch) {
  const Repeatable repeatable;
  // On a GPU large enough that activations outweigh the scratch of convolutions.
  const int64_t kSide = 16, kLarge = device.is_cpu() ? 64 : 4096, kSmall = device.is_cpu() ? 8 : 64;
  Training training({.blocks = {1, 1, 1}}, device);
  training.step(kSmall, kSide, 0);
  const size_t idle = live_bytes();
  pool().reset_peaks();
  training.step(kSmall, kSide, 0);
  const size_t least = pool().stats().peak_live_bytes;
  release_workspace();
  pool().reset_peaks();
  {
    Training other({.blocks = {1, 1, 1}}, device);
    other.step(kLarge, kSide, 0);
  }
  const size_t most = pool().stats().peak_live_bytes;
  ASSERT_GT(most, 3 * least);

  for (const double share : {0.3, 0.4, 0.5, 0.6, 0.7}) {
    SCOPED_TRACE(share);
    release_workspace();
    pool().trim();
    const auto limit = static_cast<size_t>(static_cast<double>(most) * share);
    pool().set_byte_limit(limit);
    const State before = training.model_state();
    try {
      training.step(kLarge, kSide, 1);
      FAIL() << "expected OutOfMemory at a limit of " << limit;
    } catch (const OutOfMemory& error) {
      const std::string message = error.what();
      for (const char* part : {"expected room for ", "live ", "cached ", "limit ", "device free "}) {
        EXPECT_NE(message.find(part), std::string::npos) << message;
      }
    }
    training.recover();
    // Gradients are gone; running statistics show how far the forward pass came.
    EXPECT_EQ(differences(training.model_state(), before).empty(), false);
    release_workspace();
    EXPECT_LE(live_bytes(), idle);

    Training control({.blocks = {1, 1, 1}}, device);
    control.load(training.model_state());
    control.load_optimizer(training.optimizer_state());
    std::vector<double> losses, expected;
    for (int64_t i = 0; i < 3; ++i) losses.push_back(training.step(kSmall, kSide, 2 + i));
    pool().set_byte_limit({});
    for (int64_t i = 0; i < 3; ++i) expected.push_back(control.step(kSmall, kSide, 2 + i));
    EXPECT_EQ(losses, expected);
    EXPECT_EQ(differences(training.state(), control.state()), kNone);
  }
}

/// Takes all memory of a device but about `spared` bytes.
std::vector<Tensor> fill_device(Device device, size_t spared) {
  std::vector<Tensor> taken;
  MemoryPool& pool = backend_of(device).memory_pool(device.index);
  for (int64_t bytes = int64_t{4} << 30; bytes >= int64_t{2} << 20; bytes /= 2) {
    try {
      while (true) taken.push_back(Tensor::empty({bytes}, DType::kUInt8, device));
    } catch (const OutOfMemory&) {
    }
  }
  pool.trim();
  for (size_t given = 0; given < spared && !taken.empty(); taken.pop_back()) {
    given += taken.back().spec().bytes();
  }
  pool.trim();
  return taken;
}

TEST(GpuLongMemory, TrainingGoesOnWhenTheDeviceIsFull) {
  const Device device = Device::cuda();
  if (!is_available(device)) GTEST_SKIP() << "no GPU";
  MemoryPool& pool = backend_of(device).memory_pool(0);
  int64_t side = 24;
  for (const bool autotune : {false, true}) {
    for (const size_t spared : {size_t{96} << 20, size_t{400} << 20, size_t{1} << 30}) {
      SCOPED_TRACE(fmt::format("autotune {}, {} bytes spared", autotune, spared));
      settings::set_autotune(autotune);
      side += 2;  // problems that were not met before, so that plans are looked for now
      Training training({.blocks = {2, 2, 2}}, device, 32);
      const std::vector<Tensor> taken = fill_device(device, spared);
      int64_t batch = 8192;
      int refusals = 0;
      std::string message;
      for (int done = 0; done < 3;) {
        try {
          EXPECT_TRUE(std::isfinite(training.step(batch, side, 0)));
          ++done;
        } catch (const OutOfMemory& error) {
          ++refusals;
          message = error.what();
          training.recover();
          batch /= 2;
          ASSERT_GT(batch, 0) << message;
        }
      }
      std::printf("  autotune %d, %zu MiB spared: batch %lld after %d refusals, reserved %zu MiB; %s\n",
                  autotune, spared >> 20, static_cast<long long>(batch), refusals,
                  pool.stats().reserved_bytes >> 20, message.c_str());
      EXPECT_GT(refusals, 0);
    }
  }
}

// ---- thousands of steps

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  file >> pages >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void stays_flat(Device device, int steps, int64_t width, int64_t most, std::vector<int64_t> sides) {
  settings::set_autotune(device.is_cuda());
  MemoryPool& pool = backend_of(device).memory_pool(device.index);
  backend_of(device).workspace(current_stream(device)).release();
  pool.trim();
  pool.reset_peaks();
  Training training({.blocks = {1, 1, 1}}, device, width);
  std::mt19937 random(5);
  std::vector<int64_t> batches;
  for (int i = 0; i < 20; ++i) batches.push_back(1 + static_cast<int64_t>(random()) % most);
  batches.push_back(most);
  training.step(1, sides[0], 0);
  const size_t resident_at_first = resident_bytes();
  // Every size has been met once when the warm-up ends.
  for (const int64_t side : sides) {
    for (const int64_t batch : batches) training.step(batch, side, 0);
  }
  const size_t live = pool.stats().live_bytes, descriptors = open_descriptors();
  size_t resident = 0;  // once the host's allocator has settled, too
  const size_t reserved = pool.stats().peak_reserved_bytes;
  size_t most_reserved = 0;
  for (int i = 0; i < steps; ++i) {
    training.step(batches[random() % batches.size()], sides[random() % sides.size()], 0);
    ASSERT_EQ(pool.stats().live_bytes, live) << "after step " << i;
    ASSERT_EQ(open_descriptors(), descriptors) << "after step " << i;
    most_reserved = std::max(most_reserved, pool.stats().reserved_bytes);
    if (i == steps / 4) resident = resident_bytes();
  }
  const PoolStats stats = pool.stats();
  std::printf(
      "  peak live %zu MiB, reserved %zu, then at most %zu MiB (%.3f of peak live), resident %zu, %zu, "
      "%zu KiB, "
      "%llu segments taken, %llu given back\n",
      stats.peak_live_bytes >> 20, reserved >> 20, most_reserved >> 20,
      static_cast<double>(stats.peak_reserved_bytes) / static_cast<double>(stats.peak_live_bytes),
      resident_at_first >> 10, resident >> 10, resident_bytes() >> 10,
      static_cast<unsigned long long>(stats.device_allocations),
      static_cast<unsigned long long>(stats.device_deallocations));
  // A few segments of 2 MiB are always more than a fifth of what a small model holds.
  EXPECT_LE(static_cast<double>(stats.peak_reserved_bytes),
            std::max(1.2 * static_cast<double>(stats.peak_live_bytes), 0x1p23));
  // Sanitizers keep freed memory back, to find late accesses.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(resident_bytes(), resident + (size_t{2} << 20));
#endif
}

TEST(MemoryOverTime, StaysFlatWithChangingBatches) {
  stays_flat(Device::cpu(), 100, 4, 24, {8, 12});
}

TEST(GpuLongMemory, StaysFlatWithChangingBatches) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  stays_flat(Device::cuda(), 2000, 16, 256, {24, 32});
}

}  // namespace
}  // namespace sinter::nn
