#include "trainer/trainer_plan.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/core.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>

#include "common/console.h"
#include "common/progress_bar.h"
#include "common/text.h"
#include "run/gpu_meter.h"

namespace sinter::examples {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kImages = 32;  // --batch auto takes a multiple of them
/// Of the memory, what nobody plans: contexts, libraries and their code, gaps between blocks.
constexpr size_t kShareUnplanned = 32;
constexpr size_t kUnplannedOnGpu = size_t{512} << 20;
/// Images that measure what decoding on a GPU takes: as many as its memory has this room for.
constexpr int64_t kMostDecoded = 512;
constexpr size_t kRoomOfDecoded = size_t{64} << 20;
constexpr int64_t kWarmSteps = 5, kTimedSteps = 20;
constexpr double kLeastSeconds = 2.0;  // counters of energy move some ten times a second

/// Host memory that programs may take before others are pushed out, caches of files included.
size_t free_host_memory(size_t otherwise) {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (size_t kib = 0; file >> name >> kib; std::getline(file, unit)) {
    if (name == "MemAvailable:") return kib << 10;
  }
  return otherwise;
}

/// The least of all ranks' numbers.
int64_t least(int64_t own, const Communicator& ranks) {
  if (ranks.size() == 1) return own;
  std::vector<int64_t> numbers(static_cast<size_t>(ranks.size()), 0);
  numbers[static_cast<size_t>(ranks.rank())] = own;
  const Tensor all = Tensor::from_values(numbers, {ranks.size()});
  ranks.all_reduce_(all);
  return std::ranges::min(all.to_vector<int64_t>());
}

double sum_over(double own, const Communicator& ranks) {
  if (ranks.size() == 1) return own;
  const Tensor sum = Tensor::from_values<double>({own}, {1});
  ranks.all_reduce_(sum);
  return sum.item();
}

}  // namespace

int64_t largest_fitting(int64_t most, size_t room, const std::function<size_t(int64_t n)>& bytes) {
  int64_t fits = 1, fails = most + 1;
  const size_t first = most < 1 ? 0 : bytes(1);
  if (most < 1 || first > room) return 0;
  size_t taken = first;
  double each = 0;  // that one more takes
  while (fails - fits > 1) {
    // Along the line through the last two; the first step, which knows no line, is to 2.
    const double more = each > 0 ? static_cast<double>(room - taken) / each : 1.0;
    const double far = static_cast<double>(fails - 1 - fits);
    const int64_t next = fits + std::max<int64_t>(1, static_cast<int64_t>(std::min(more, far)));
    const size_t of_next = bytes(next);
    each = std::max(
        1.0, (static_cast<double>(of_next) - static_cast<double>(taken)) / static_cast<double>(next - fits));
    if (of_next > room) {
      fails = next;
    } else {
      fits = next;
      taken = of_next;
    }
  }
  return fits;
}

int64_t tried_images(const TrainerOptions& options, Device device, int64_t images) {
  return std::min<int64_t>(images, device.is_cuda() ? 2000 : options.plans_for_gpu() ? 8 : 64);
}

std::shared_ptr<const nn::data::Dataset> tried_part(const std::shared_ptr<const nn::data::Dataset>& test,
                                                    const TrainerOptions& options, Device device,
                                                    const Communicator& ranks, TestSample& sample) {
  const int64_t size = test->size(), parts = size < ranks.size() ? 1 : ranks.size();
  sample.of = size / parts;
  sample.images = tried_images(options, device, sample.of);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < sample.images * parts; ++i) indices.push_back(i * size / (sample.images * parts));
  return std::make_shared<nn::data::Subset>(test, std::move(indices));
}

// ---- memory

size_t TrainerBase::memory_room() const {
  Backend& backend = backend_of(device_);
  size_t room = common_.memory;
  if (room == 0) {
    const size_t free = backend.raw_memory(device_.index).capacity().free;
    room = backend.memory_pool(device_.index).stats().reserved_bytes +
           (device_.is_cpu() ? free_host_memory(free) : free);
  }
  if (!is_for_gpu()) room /= static_cast<size_t>(std::max(ranks_.environment().local_size, 1));
  const size_t unplanned = room / kShareUnplanned + (is_for_gpu() ? kUnplannedOnGpu : 0);
  return room > unplanned ? room - unplanned : 0;
}

TrainerBase::Surroundings TrainerBase::measure_surroundings(const TestSample& sample) {
  MemoryPool& pool = backend_of(device_).memory_pool(device_.index);
  const auto start = [&] {
    pool.reset_peaks();
    return pool.stats().live_bytes;
  };
  Surroundings found{.sample = sample};
  size_t before = start();
  nn::data::DataLoaderOptions options = plan_.loader;
  // Photographs that a GPU decodes differ in size: the largest of a few small batches says little of large
  // ones.
  if (device_.is_cuda() && options.decode != nn::data::DecodeOn::kCpu) {
    const int64_t each = std::min({plan_.images->size() / ranks_.size(), kMostDecoded,
                                   static_cast<int64_t>(memory_room() / kRoomOfDecoded)});
    options.batch_size = std::max(options.batch_size, each * ranks_.size());
  }
  const int64_t images = options.batch_size / ranks_.size();
  {  // as many batches as workers are ahead, and one in use
    nn::data::DataLoader loader(plan_.images, options);
    std::optional<nn::data::Batch> batch;
    for (int64_t i = 0; i < options.prefetch + 2; ++i) batch = loader.next();
  }
  size_t held = 0;  // the batch itself, which the step counts
  for (const TensorSpec& spec : batch_specs(options.batch_size)) held += spec.bytes();
  const size_t peak = pool.stats().peak_live_bytes - before;
  found.loader_per_image = static_cast<double>(peak > held ? peak - held : 0) / static_cast<double>(images);
  if (sample.images == 0) return found;
  before = start();
  try_test();
  module().train();
  const int64_t at_once = std::min(sample.images, sample.batch > 0 ? sample.batch : plan_.loader.batch_size);
  found.tests_per_image =
      static_cast<double>(pool.stats().peak_live_bytes - before) / static_cast<double>(at_once);
  return found;
}

size_t TrainerBase::Surroundings::loader(int64_t batch, int64_t ranks) const {
  return static_cast<size_t>(loader_per_image * static_cast<double>(batch / ranks));
}

size_t TrainerBase::Surroundings::tests(int64_t batch) const {
  const int64_t at_once = std::min(sample.of, sample.batch > 0 ? sample.batch : batch);
  return static_cast<size_t>(tests_per_image * static_cast<double>(at_once));
}

size_t TrainerBase::peak_with(const nn::StepForecast& step, int64_t batch, const Surroundings& around) const {
  // Tests come on top of the job, which keeps its memory.
  return step.peak().bytes + around.loader(batch, ranks_.size()) + around.tests(batch);
}

nn::StepForecast TrainerBase::forecast(int64_t batch, nn::ForecastOptions options) {
  if (common_.plans_for_gpu() && device_.is_cpu()) options.device = DeviceType::kCuda;
  module().train();
  return job_->forecast(batch_specs(batch), options);
}

int64_t TrainerBase::largest_batch(const Surroundings& around) {
  const size_t room = memory_room();
  // Bounds suffice, since what they add to the exact bytes is small beside the arena, and to time the kernels
  // of a batch that fills a GPU takes over a minute.
  const auto bytes = [&](int64_t batch) {
    return peak_with(forecast(batch, {.measure = false}), batch, around);
  };
  // Of begin + unit, begin + 2 unit, ...; 0 if none is.
  const auto largest = [&](int64_t begin, int64_t unit, int64_t most) {
    const int64_t units = least(
        largest_fitting((most - begin) / unit, room, [&](int64_t n) { return bytes(begin + n * unit); }),
        ranks_);
    return units > 0 ? begin + units * unit : 0;
  };
  const int64_t ranks = ranks_.size(), unit = std::lcm(kImages, ranks);
  const int64_t most = plan_.images->size() / common_.accumulate;
  const int64_t batch = largest(0, unit, most);
  return batch > 0 ? batch : largest(ranks, ranks, std::min(most, unit - 1));  // norms need two images
}

void settle_batch(TrainerOptions& options, int64_t images, const TestSample& sample,
                  const Communicator& ranks, const std::function<std::unique_ptr<TrainerBase>()>& make) {
  if (!options.batch_auto || options.evaluate) return;
  const Generator generator = default_generator();  // the run's own weights are drawn later
  options.batch = std::min(std::lcm(kImages, int64_t{ranks.size()}),
                           std::max<int64_t>(images / ranks.size(), 1) * ranks.size());
  options.batch = make()->settled_batch(sample);
  default_generator() = generator;
}

int64_t TrainerBase::settled_batch(const TestSample& sample) {
  const Surroundings around = measure_surroundings(sample);
  const int64_t batch = largest_batch(around);
  const size_t room = memory_room();
  if (batch == 0)
    throw Error(fmt::format("--batch auto: {} of memory do not hold a step of {} images", bytes_text(room),
                            2 * ranks_.size()));
  const size_t taken = peak_with(forecast(batch, {.measure = false}), batch, around);
  say("--batch auto takes {}, which take {}{} of {} that are free{}\n", counted(batch, "image"),
      device_.is_cuda() ? "at most " : "", bytes_text(taken), bytes_text(room),
      batch + kImages > plan_.images->size() ? ": there are no more" : "");
  return batch;
}

// ---- what --plan tells

void TrainerBase::tell_memory(const Surroundings& around) {
  const int64_t batch = plan_.loader.batch_size, images = batch / ranks_.size();
  const nn::StepForecast step = forecast(batch, {});
  const size_t peak = peak_with(step, batch, around), room = memory_room();
  const auto row = [](std::string_view name, size_t bytes, const char* how) {
    say("  {:<12} {:>12}  {}\n", name, bytes_text(bytes), how);
  };
  say("memory of a batch of {}{}\n", batch,
      ranks_.size() > 1 ? fmt::format(", {} on each rank", images) : "");
  for (const auto& [name, part] : step.parts()) row(name, part.bytes, part.exact ? "exact" : "at most");
  row("loader", around.loader(batch, ranks_.size()), "as measured");
  row("tests", around.tests(batch), "as measured");
  row("all", peak, peak <= room ? "" : "more than there is");
  row("usable", room,
      common_.memory > 0 ? "of --for; libraries and gaps take the rest"
                         : "of what is free; libraries and gaps take the rest");
  say("a step is {}{}\n", counted(step.calls, "call"),
      step.recomputed_calls > 0 ? fmt::format(", of which {} compute again", step.recomputed_calls) : "");
  const int64_t largest = largest_batch(around);
  say("{}\n", largest > 0 ? fmt::format("the largest batch that fits: {} (--batch auto)", largest)
                          : std::string("no batch fits"));
  tell_limits(step);
}

void TrainerBase::tell_limits(const nn::StepForecast& step) {
  if (common_.memory_limit > 0) return;
  say("\n  --memory-limit    of the step's   speed, expected\n");
  size_t before = step.arena.bytes;
  for (const double share : {0.75, 0.5, 0.25, 0.0}) {
    const auto limit = static_cast<size_t>(share * static_cast<double>(step.arena.bytes));
    const nn::StepForecast limited =
        forecast(plan_.loader.batch_size, {.measure = false, .memory_limit = limit});
    if (limited.arena.bytes >= before) continue;  // no less is possible
    before = limited.arena.bytes;
    say("  {:>10.4g} GiB {:>13.0f} % {:>15.0f} %\n", static_cast<double>(before) / 0x1p30,
        100.0 * static_cast<double>(before) / static_cast<double>(step.arena.bytes),
        100.0 * static_cast<double>(step.moved_bytes) / static_cast<double>(limited.moved_bytes));
  }
}

TrainerBase::Pace TrainerBase::measure_pace(const TestSample& sample) {
  prepare();
  begin_epoch();
  module().train();
  const auto take_steps = [&](int64_t count) {
    for (int64_t i = 0; i < count * common_.accumulate; ++i) {
      std::optional<nn::data::Batch> batch = next_batch();
      while (!batch) batch = next_batch();  // an epoch had ended
      const int64_t of_series = i % common_.accumulate;
      if (of_series == 0) before_step();
      take_batch(*batch, schedule_(step_), of_series == 0, of_series + 1 == common_.accumulate);
    }
    checked_loss();  // waits for the device
    synchronize(device_);
  };
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const GpuMeter meter(device_);
  take_steps(kWarmSteps);
  clear_stats();
  Pace pace;
  const std::optional<double> joules = meter.joules();
  auto start = Clock::now();
  do {
    take_steps(kTimedSteps);
  } while (stopped_by_ == 0 && least(seconds_since(start) < kLeastSeconds ? 0 : 1, ranks_) == 0);
  const auto steps = static_cast<double>(total_.steps - kWarmSteps);
  pace.step_seconds = seconds_since(start) / steps;
  pace.wait_share = stats_.wait_seconds / (steps * pace.step_seconds);
  pace.step_joules = sum_over(joules ? (meter.joules().value_or(*joules) - *joules) / steps : 0.0, ranks_);
  if (sample.images > 0) {
    start = Clock::now();
    try_test();
    synchronize(device_);
    pace.test_seconds =
        seconds_since(start) * static_cast<double>(sample.of) / static_cast<double>(sample.images);
  }
  return pace;
}

void TrainerBase::tell_plan(const TestSample& sample) {
  const Surroundings around = measure_surroundings(sample);
  tell_memory(around);
  if (common_.memory > 0) return;  // of another device nothing can be measured
  const Pace pace = measure_pace(sample);
  const auto images = static_cast<double>(plan_.loader.batch_size * common_.accumulate);
  const auto steps = static_cast<double>(steps_per_epoch()), epochs = static_cast<double>(*common_.epochs);
  const double of_tests = pace.test_seconds * static_cast<double>(tests_of_run());
  const double run = steps * epochs * pace.step_seconds + of_tests;
  const auto row = [](const char* name, const std::string& value) { say("  {:<12} {}\n", name, value); };
  say("\ntime of {}, with the loader of the run\n", counted(total_.steps - kWarmSteps, "step"));
  row("images/s", fmt::format("{:.1f}, waiting for data {:.0f} % of the time", images / pace.step_seconds,
                              100 * pace.wait_share));
  row("an epoch", fmt::format("{:.1f} s, {}", steps * pace.step_seconds, counted(steps_per_epoch(), "step")));
  if (sample.images > 0)
    row("tests", fmt::format("{:.1f} s each, {} of them", pace.test_seconds, tests_of_run()));
  row("the run", fmt::format("{} ({:.1f} s)", format_duration(run), run));
  if (pace.step_joules > 0) {
    const double kwh = pace.step_joules / pace.step_seconds * run / 3.6e6;
    row("energy",
        fmt::format("{:.3f} J an image, {:.3f} kWh the run: the GPUs alone", pace.step_joules / images, kwh));
  }
}

}  // namespace sinter::examples
