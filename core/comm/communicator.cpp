#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <mutex>

#include <sinter/core/base/log.h>
#include <sinter/core/comm/collective_backend.h>
#include <sinter/core/comm/communicator.h>
#include <sinter/core/comm/device_watch.h>
#include <sinter/core/comm/rank_watch.h>

namespace sinter {
namespace {

struct Known {
  std::mutex mutex;
  std::map<uint64_t, const Communicator*> by_id;
  uint64_t next = 1;
};

Known& known() {
  static Known& all = *new Known;
  return all;
}

void check_dtype(const Tensor& x, const char* name) {
  SINTER_CHECK(x.defined(), "[comm] {}: the tensor is undefined", name);
  SINTER_CHECK(is_float(x.dtype()) || x.dtype() == DType::kInt32 || x.dtype() == DType::kInt64,
               "[comm] {}: expected a float dtype, int32 or int64 but got {}", name, x.dtype());
}

std::string call_of(const char* operation, const TensorSpec& spec) {
  return fmt::format("{} of {} {}{}", operation, spec.dtype, spec.shape,
                     spec.device.is_cpu() ? "" : " on a GPU");
}

void copy_on(const Stream& stream, void* to, const void* from, size_t bytes) {
  backend_of(stream.device).copy(to, stream.device, from, stream.device, bytes, stream);
}

/// An error's words for the other ranks.
std::string reason_of(const std::string& error) {
  constexpr std::string_view kPrefix = "[comm] ";  // of what the communicator has thrown itself
  return "it failed: " + error.substr(error.starts_with(kPrefix) ? kPrefix.size() : 0);
}

}  // namespace

comm::MakeBackend& comm::gpu_backend_maker() {
  static MakeBackend maker = make_nccl_backend;
  return maker;
}

std::shared_ptr<Communicator> Communicator::join(const CommunicatorOptions& options) {
  return join(read_process_environment(), options);
}

std::shared_ptr<Communicator> Communicator::join(const ProcessEnvironment& environment,
                                                 const CommunicatorOptions& options) {
  return std::shared_ptr<Communicator>(new Communicator(environment, options));
}

Communicator::Communicator(const ProcessEnvironment& environment, const CommunicatorOptions& options)
    : environment_(environment), options_(options), exceptions_(std::uncaught_exceptions()) {
  SINTER_CHECK(options.join_timeout > 0 && options.timeout > 0 && options.heartbeat_timeout > 0,
               "[comm] expected timeouts > 0 but got {}, {} and {} s", options.join_timeout, options.timeout,
               options.heartbeat_timeout);
  SINTER_CHECK(options.connect_timeout > 0, "[comm] expected a connect_timeout > 0 but got {} s",
               options.connect_timeout);
  if (size() > 1) connect();
  const std::lock_guard lock(known().mutex);
  id_ = known().next++;
  known().by_id[id_] = this;
}

void Communicator::connect() {
  const char* const wanted = std::getenv("SINTER_GLOO");
  const bool has_gloo = !comm::gloo_version().empty() && (wanted == nullptr || std::string(wanted) != "off");
  watch_ = std::make_unique<comm::RankWatch>(
      comm::meet(environment_, {.timeout_seconds = options_.join_timeout,
                                .library = has_gloo ? comm::gloo_version() : "no Gloo",
                                .purpose = options_.purpose}),
      comm::WatchOptions{.lost_after_seconds = options_.heartbeat_timeout});
  const auto watch_over = [this](comm::CollectiveBackend& backend, const char* who) {
    return std::make_unique<comm::DeviceWatch>(
        backend,
        comm::DeviceWatchOptions{.timeout_seconds = options_.timeout,
                                 .who = who,
                                 .on_error = [this](const CommunicationError& error) { give_up(error); }});
  };
  try {
    cpu_ = has_gloo ? comm::make_gloo_backend(*watch_, environment_, options_)
                    : comm::make_star_backend(*watch_);
    if (options_.device.is_cuda()) gpu_ = comm::gpu_backend_maker()(*watch_, options_);
    // Who is done first must not go while others still connect to it.
    watch_->exchange({}, "who is ready", options_.join_timeout);
    watch_->on_lost([this](const std::string& text) { abort(text); });
    host_watch_ = watch_over(*cpu_, "it");
    if (gpu_ != nullptr) device_watch_ = watch_over(*gpu_, "its GPU");
  } catch (const std::exception& error) {
    watch_->fail(reason_of(error.what()));  // ends its thread, which may call this object
    throw;
  }
}

Communicator::~Communicator() {
  {
    const std::lock_guard lock(known().mutex);
    known().by_id.erase(id_);
  }
  if (watch_ == nullptr) return;
  const bool failed = std::uncaught_exceptions() > exceptions_ && !gone_;
  gone_ = true;
  if (failed) watch_->fail("it failed with an error");
  watch_->leave();
  host_watch_.reset();
  device_watch_.reset();
  // In order: the backend ends what is queued, for which the others still wait.
  if (failed) abort("[comm] this rank has left");
}

const Communicator& Communicator::of(uint64_t id) {
  const std::lock_guard lock(known().mutex);
  const auto found = known().by_id.find(id);
  SINTER_CHECK(found != known().by_id.end(),
               "[comm] the communicator of this job is gone; it must outlive it");
  return *found->second;
}

std::string Communicator::describe(int rank) const {
  return watch_ != nullptr ? comm::describe(watch_->members(), rank) : fmt::format("rank {}", rank);
}

comm::CollectiveBackend& Communicator::backend_for(Device device) const {
  if (device.is_cpu()) return *cpu_;
  SINTER_CHECK(gpu_ != nullptr && device == options_.device,
               "[comm] this rank has joined with {}, but the tensor is on {}", options_.device, device);
  return *gpu_;
}

template <class Operation>
void Communicator::run(const char* name, const Operation& operation) const {
  watch_->begin(name);
  check();
  const auto start = std::chrono::steady_clock::now();
  try {
    operation();
  } catch (const CommunicationError& error) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    const bool is_late = passed.count() >= options_.timeout;  // which Gloo's errors do not say
    throw CommunicationError(is_late ? give_up(comm::LateError(error.what())) : give_up(error));
  }
}

/// What a rank says before it takes part: which call it makes, of which errors tell the beginning, and data
/// of few bytes, for which nothing else needs to be sent.
struct Communicator::Announcement {
  Announcement() = default;
  Announcement(const std::string& text, std::span<const std::byte> bytes)
      : hash(std::hash<std::string>()(text)) {
    std::memcpy(call, text.data(), std::min(text.size(), sizeof call - 1));
    if (!bytes.empty()) std::memcpy(data, bytes.data(), std::min(bytes.size(), sizeof data));
  }

  uint64_t hash = 0;
  char call[56] = {};
  std::byte data[64] = {};
};

// All ranks' announcements in place of this rank's; how they differ, empty if they do not.
std::string Communicator::announce(std::vector<Announcement>& all) const {
  const Announcement own = all.front();
  all.resize(static_cast<size_t>(size()));
  cpu_->all_gather(&own, all.data(), sizeof own, {});
  for (int other = 1; other < size(); ++other) {
    const Announcement& announced = all[static_cast<size_t>(other)];
    if (announced.hash == all[0].hash) continue;
    return fmt::format("{} calls {}, where {} calls {}", describe(other), announced.call, describe(0),
                       all[0].call);
  }
  return {};
}

// Runs operation(announcements), if all ranks make this call.
template <class Operation>
void Communicator::run_announced(const char* name, const std::string& call, std::span<const std::byte> data,
                                 const Operation& operation) const {
  std::vector<Announcement> all = {Announcement(call, data)};
  std::string difference;
  run(name, [&] {
    difference = announce(all);
    if (difference.empty()) operation(all);
  });
  if (!difference.empty()) throw_error<CommunicationError>("[comm] the ranks differ: {}", difference);
}

// By the thread that computes or by the watch over the device; the first that comes finds the words.
std::string Communicator::give_up(const CommunicationError& error) const {
  const bool is_own = dynamic_cast<const comm::OwnError*>(&error) != nullptr;
  const bool is_late = dynamic_cast<const comm::LateError*>(&error) != nullptr;
  std::optional<std::string> lost = watch_->failure();
  // Whoever is lost is known a little later than that something is.
  if (!lost && !is_own && !is_late && aborted().empty())
    lost = watch_->wait_for_failure(options_.heartbeat_timeout + 3.0);
  if (lost) return *lost + "; here in " + watch_->present_operation();
  if (gone_) return error.what();  // nobody waits for this rank any more
  const std::string behind = is_own ? "" : watch_->laggard();
  const std::string words = fmt::format("{} of rank {} has failed: {}{}", watch_->present_operation(), rank(),
                                        error.what(), behind.empty() ? "" : "; furthest behind is " + behind);
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_.empty()) return aborted_;
    aborted_ = "[comm] " + words;
  }
  log::warning("[comm] {}", words);
  watch_->fail("it failed: " + words);
  free_waiting("[comm] " + words);
  return "[comm] " + words;
}

std::string Communicator::aborted() const {
  const std::lock_guard lock(mutex_);
  return aborted_;
}

void Communicator::check() const {
  if (watch_ == nullptr) return;
  if (const auto lost = watch_->failure())
    throw CommunicationError(*lost + "; here in " + watch_->present_operation());
  if (const std::string text = aborted(); !text.empty()) throw CommunicationError(text);
}

void Communicator::all_reduce_(const Tensor& x) const {
  check_dtype(x, "all_reduce");
  if (watch_ == nullptr) return;
  run_announced("all_reduce", call_of("all_reduce", x.spec()), {}, [&](const auto& /*all*/) {
    if (x.numel() == 0) return;
    backend_for(x.device()).all_reduce(x.raw_data(), x.numel(), x.dtype(), current_stream(x.device()));
  });
  if (x.numel() > 0) x.storage()->bump_version();
}

Tensor Communicator::reduce_scatter(const Tensor& x) const {
  check_dtype(x, "reduce_scatter");
  SINTER_CHECK(x.rank() > 0 && x.shape()[0] % size() == 0,
               "[comm] reduce_scatter: expected a first axis that {} ranks divide but got {}", size(),
               x.shape());
  check_call("reduce_scatter", x.spec());
  Tensor part = Tensor::empty(x.shape().with(0, x.shape()[0] / size()), x.dtype(), x.device());
  reduce_scatter(x.raw_data(), part.raw_data(), part.numel(), x.dtype(), current_stream(x.device()));
  return part;
}

void Communicator::reduce_scatter(const void* from, void* to, int64_t count, DType dtype,
                                  const Stream& stream) const {
  if (count == 0) return;
  if (watch_ == nullptr) return copy_on(stream, to, from, static_cast<size_t>(count) * size_of(dtype));
  run("reduce_scatter", [&] { backend_for(stream.device).reduce_scatter(from, to, count, dtype, stream); });
}

Tensor Communicator::all_gather(const Tensor& x) const {
  SINTER_CHECK(x.defined() && x.rank() > 0, "[comm] all_gather: expected a tensor with a first axis");
  Tensor all = Tensor::empty(x.shape().with(0, x.shape()[0] * size()), x.dtype(), x.device());
  const size_t bytes = x.spec().bytes();
  const Stream stream = current_stream(x.device());
  if (watch_ == nullptr) {
    if (bytes > 0) copy_on(stream, all.raw_data(), x.raw_data(), bytes);
    return all;
  }
  const bool is_small = x.device().is_cpu() && bytes <= sizeof(Announcement::data);
  const std::span data(static_cast<const std::byte*>(x.raw_data()), is_small ? bytes : 0);
  run_announced("all_gather", call_of("all_gather", x.spec()), data, [&](const auto& announcements) {
    if (bytes == 0) return;
    if (!is_small) return backend_for(x.device()).all_gather(x.raw_data(), all.raw_data(), bytes, stream);
    auto* to = static_cast<std::byte*>(all.raw_data());
    for (const Announcement& announced : announcements) to = std::copy_n(announced.data, bytes, to);
  });
  return all;
}

void Communicator::all_gather(const void* from, void* to, size_t bytes, const Stream& stream) const {
  if (bytes == 0) return;
  if (watch_ == nullptr) return copy_on(stream, to, from, bytes);
  run("all_gather", [&] { backend_for(stream.device).all_gather(from, to, bytes, stream); });
}

void Communicator::broadcast_(const Tensor& x, int root) const {
  SINTER_CHECK(x.defined(), "[comm] broadcast: the tensor is undefined");
  SINTER_CHECK(root >= 0 && root < size(), "[comm] broadcast: expected a root from 0 to {} but got {}",
               size() - 1, root);
  if (watch_ == nullptr) return;
  const size_t bytes = x.spec().bytes();
  const bool is_small = x.device().is_cpu() && bytes <= sizeof(Announcement::data);
  auto* const values = static_cast<std::byte*>(x.raw_data());
  const std::string call = fmt::format("{} from rank {}", call_of("broadcast", x.spec()), root);
  run_announced("broadcast", call, {values, is_small ? bytes : 0}, [&](const auto& announcements) {
    if (bytes == 0) return;
    if (!is_small) return backend_for(x.device()).broadcast(values, bytes, root, current_stream(x.device()));
    std::copy_n(announcements[static_cast<size_t>(root)].data, bytes, values);
  });
  if (bytes > 0) x.storage()->bump_version();
}

void Communicator::barrier() const {
  if (watch_ == nullptr) return;
  run_announced("barrier", "barrier", {}, [](const auto& /*all*/) {});
}

uint64_t Communicator::agree(uint64_t bits) const {
  if (watch_ == nullptr) return bits;
  uint64_t all = 0;
  run("agreement", [&] { all = watch_->agree(bits, options_.timeout); });
  return all;
}

std::vector<int64_t> Communicator::exchange(const std::string& call, std::span<const int64_t> numbers) const {
  constexpr size_t kMost = 8;
  static_assert(kMost * sizeof(int64_t) <= sizeof(Announcement::data));
  SINTER_CHECK(numbers.size() <= kMost, "[comm] expected at most {} numbers to exchange but got {}", kMost,
               numbers.size());
  std::vector<int64_t> gathered(numbers.begin(), numbers.end());
  if (watch_ == nullptr) return gathered;
  gathered.resize(numbers.size() * static_cast<size_t>(size()));
  run_announced(call.c_str(), call, std::as_bytes(numbers), [&](const auto& all) {
    auto* to = gathered.data();
    for (const Announcement& announced : all) {
      std::memcpy(to, announced.data, numbers.size_bytes());
      to += numbers.size();
    }
  });
  return gathered;
}

void Communicator::check_equal(const std::string& text, const char* what) const {
  const auto hash = static_cast<int64_t>(std::hash<std::string>()(text));
  const std::vector<int64_t> all = exchange(fmt::format("the comparison of {}", what), {&hash, 1});
  for (int other = 1; other < size(); ++other) {
    if (all[static_cast<size_t>(other)] == all[0]) continue;
    throw_error<CommunicationError>("[comm] {} of {} differ from those of {}", what, describe(other),
                                    describe(0));
  }
}

void Communicator::check_call(const char* operation, const TensorSpec& spec) const {
  if (watch_ == nullptr) return;
  run_announced(operation, call_of(operation, spec), {}, [](const auto& /*all*/) {});
}

void Communicator::begin_all_reduce(const Bucket& bucket, const Stream& stream) const {
  if (watch_ == nullptr) {
    for (const Part& part : bucket.parts) {
      const size_t size = size_of(bucket.dtype);
      auto* const to = static_cast<std::byte*>(bucket.sums) + static_cast<size_t>(part.place) * size;
      if (to != part.from) copy_on(stream, to, part.from, static_cast<size_t>(part.count) * size);
    }
    return;
  }
  run("all_reduce of gradients", [&] { backend_for(stream.device).begin_all_reduce(bucket, stream); });
}

void Communicator::end_all_reduce(const void* sums, const Stream& stream) const {
  if (watch_ == nullptr) return;
  run("all_reduce of gradients", [&] { backend_for(stream.device).end_all_reduce(sums, stream); });
}

void Communicator::note_work(const char* what) const {
  if (gpu_ == nullptr) return;
  watch_->begin(what);
  gpu_->note_work();
}

void Communicator::fail(const std::string& reason) {
  if (watch_ == nullptr) return;
  gone_ = true;
  watch_->fail(reason_of(reason));
  abort("[comm] this rank has failed");
}

void Communicator::abort(const std::string& text) const {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_.empty()) return;
    aborted_ = text;
  }
  free_waiting(text);
}

void Communicator::free_waiting(const std::string& text) const {
  if (cpu_ != nullptr) cpu_->abort(text);
  if (gpu_ != nullptr) gpu_->abort(text);
}

void Communicator::leave() {
  if (watch_ == nullptr || gone_) return;
  barrier();
  gone_ = true;
  watch_->leave();
  host_watch_.reset();
  device_watch_.reset();
}

}  // namespace sinter
