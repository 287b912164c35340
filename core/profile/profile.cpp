#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include <sinter/core/op/call_observer.h>
#include <sinter/core/profile/copy_timer.h>
#include <sinter/core/profile/profile.h>
#include <sinter/core/profile/profile_table.h>
#include <sinter/core/profile/timeline.h>

namespace sinter {
namespace {

// So many calls may wait to be read: reading one waits for its device, and each holds two of the vendor's
// events.
constexpr size_t kMostUnread = 4096;

std::string to_text(const TensorSpec& spec) {
  return fmt::format("{} {}", to_string(spec.dtype), spec.shape);
}

std::string shapes_of(const KernelQuery& query) {
  std::string text;
  for (size_t i = 0; i < query.input_count(); ++i) {
    text += (i == 0 ? "" : ", ") + (query.has_input(i) ? to_text(query.input(i)) : "none");
  }
  for (size_t i = 0; i < query.output_count(); ++i)
    text += (i == 0 ? " -> " : ", ") + to_text(query.output(i));
  return text;
}

double bytes_of(const KernelQuery& query) {
  size_t bytes = 0;
  for (size_t i = 0; i < query.input_count(); ++i) bytes += query.has_input(i) ? query.input(i).bytes() : 0;
  for (size_t i = 0; i < query.output_count(); ++i) bytes += query.output(i).bytes();
  return static_cast<double>(bytes);
}

}  // namespace

/// Device times are read long after the calls, so that profiling does not make a program wait at each.
class OpProfile::Record {
 public:
  explicit Record(const Options& options) : options_(options), timeline_(options.timeline) {}

  struct Call : Timeline::Call {
    double host_us = 0;
    std::shared_ptr<const TimeMark> start, stop;
  };

  const Options& options() const { return options_; }
  bool has_timeline() const { return timeline_.most() > 0; }
  double microseconds_until(std::chrono::steady_clock::time_point time) const {
    return std::chrono::duration<double, std::micro>(time - began_).count();
  }

  void add(Call call) {
    const std::lock_guard lock(mutex_);
    unread_.push_back(std::move(call));
    if (unread_.size() > kMostUnread) read(kMostUnread / 2);
  }

  std::vector<Row> rows(const Selection& selection) {
    std::map<Key, Sum> sums;
    {
      const std::lock_guard lock(mutex_);
      read(unread_.size());
      for (const auto& [key, sum] : sums_) sums[selected(key, selection)].add(sum, selection);
    }
    CopyTimer copies;  // with the lock given back: calls need not wait for it
    std::vector<Row> rows;
    for (auto& [key, sum] : sums) {
      for (const auto& [bytes, calls] : sum.calls_of_bytes)
        sum.row.copy_us += static_cast<double>(calls) * copies.microseconds(sum.row.device, bytes);
      rows.push_back(std::move(sum.row));
    }
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.device_us > b.device_us; });
    return rows;
  }

  void write_trace(const std::filesystem::path& path, FileSystem& files) {
    const std::lock_guard lock(mutex_);
    read(unread_.size());
    timeline_.write(path, files);
  }

 private:
  /// Op, kernel, device, shapes and scope; the last two are empty where rows are not told apart by them.
  using Key = std::tuple<const Op*, const Kernel*, Device, std::string, std::string>;

  struct Sum {
    Row row;
    std::map<double, uint64_t> calls_of_bytes;

    void add(const Sum& other, const Selection& selection) {
      const Row before = std::exchange(row, other.row);
      if (!selection.by_shape) row.shapes.clear();
      if (!selection.by_scope) row.scope.clear();
      row.calls += before.calls;
      row.device_us += before.device_us;
      row.host_us += before.host_us;
      row.bytes += before.bytes;
      row.flops += before.flops;
      for (const auto& [bytes, calls] : other.calls_of_bytes) calls_of_bytes[bytes] += calls;
    }
  };

  static Key selected(const Key& key, const Selection& selection) {
    const auto& [op, kernel, device, shapes, scope] = key;
    return {op, kernel, device, selection.by_shape ? shapes : "", selection.by_scope ? scope : ""};
  }

  void read(size_t count) {
    for (; count > 0; --count) {
      Call& call = unread_.front();
      call.us = call.stop->microseconds_since(*call.start);
      if (has_timeline()) timeline_.add(call, call.start);
      if (!options_.by_shape) call.shapes.clear();
      if (!options_.by_scope) call.scope.clear();
      Sum& sum = sums_[{call.op, call.kernel, call.stream.device, call.shapes, call.scope}];
      if (sum.row.calls == 0) {
        sum.row.op = call.op->name();
        sum.row.kernel = call.kernel->name;
        sum.row.shapes = call.shapes;
        sum.row.scope = call.scope;
        sum.row.device = call.stream.device;
      }
      sum.row.device_us += call.us;
      sum.row.host_us += call.host_us;
      sum.row.bytes += call.bytes;
      sum.row.flops += call.flops;
      ++sum.row.calls;
      ++sum.calls_of_bytes[call.bytes];
      unread_.pop_front();
    }
  }

  const Options options_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::deque<Call> unread_;
  std::map<Key, Sum> sums_;
  Timeline timeline_;
};

/// Hands what call() reports to the profile that is running. One for the whole process, which never ends:
/// other threads may still be in a call when a profile is.
class OpProfile::Observer final : public CallObserver {
 public:
  static Observer& instance() {
    static auto& observer = *new Observer;
    return observer;
  }

  void start(const std::shared_ptr<Record>& record) {
    const std::lock_guard lock(mutex_);
    SINTER_CHECK(record_ == nullptr, "[profile] another profile is running; stop it first");
    CallObserver* const other = set_call_observer(this);
    if (other != nullptr) set_call_observer(other);
    SINTER_CHECK(other == nullptr, "[profile] calls are observed by something else");
    record_ = record;
  }

  void stop(const std::shared_ptr<Record>& record) {
    const std::lock_guard lock(mutex_);
    if (record_ != record) return;
    set_call_observer(nullptr);
    record_.reset();
  }

  void before(const Op& op, const Kernel& kernel, const KernelQuery& query, const Stream& stream) override {
    record_of_call_ = running();
    if (record_of_call_ == nullptr) return;
    const bool has_timeline = record_of_call_->has_timeline();
    const Options& options = record_of_call_->options();
    current_.op = &op;
    current_.kernel = &kernel;
    current_.shapes = options.by_shape || has_timeline ? shapes_of(query) : std::string();
    current_.scope = options.by_scope || has_timeline ? call_scope() : std::string_view();
    current_.bytes = bytes_of(query);
    const OpDef::Flops flops = op.definition.flops;
    current_.flops = flops != nullptr ? flops(query.call(), query.outputs()) : 0.0;
    current_.stream = stream;
    current_.thread = std::this_thread::get_id();
    current_.start = backend_of(stream.device).mark_time(stream);
    began_ = std::chrono::steady_clock::now();
    current_.queued_us = record_of_call_->microseconds_until(began_);
  }

  void after(const Stream& stream) override {
    const std::chrono::duration<double, std::micro> host = std::chrono::steady_clock::now() - began_;
    const std::shared_ptr<Record> record = std::exchange(record_of_call_, nullptr);
    if (record == nullptr) return;
    current_.host_us = host.count();
    current_.stop = backend_of(stream.device).mark_time(stream);
    record->add(std::move(current_));
  }

 private:
  std::shared_ptr<Record> running() {
    const std::lock_guard lock(mutex_);
    return record_;
  }

  // Of the call that the thread is in; ops do not call ops. The profile is the one that ran when the call
  // began, which may have been stopped since.
  static thread_local std::shared_ptr<Record> record_of_call_;
  static thread_local Record::Call current_;
  static thread_local std::chrono::steady_clock::time_point began_;

  std::mutex mutex_;
  std::shared_ptr<Record> record_;  // of the profile that is running, or null
};

thread_local std::shared_ptr<OpProfile::Record> OpProfile::Observer::record_of_call_;
thread_local OpProfile::Record::Call OpProfile::Observer::current_;
thread_local std::chrono::steady_clock::time_point OpProfile::Observer::began_;

OpProfile::OpProfile(const Options& options) : record_(std::make_shared<Record>(options)) {
  Observer::instance().start(record_);
}

OpProfile::~OpProfile() {
  stop();
}

void OpProfile::stop() {
  Observer::instance().stop(record_);
}

std::vector<OpProfile::Row> OpProfile::rows(const Selection& selection) const {
  std::vector<Row> all = record_->rows(selection);
  if (all.size() > selection.max_rows) all.resize(selection.max_rows);
  return all;
}

std::string OpProfile::table(const Selection& selection) const {
  return to_table(record_->rows(selection), selection.max_rows);
}

void OpProfile::write_trace(const std::filesystem::path& path, FileSystem& files) const {
  SINTER_CHECK(record_->has_timeline(), "[profile] no calls are kept to be written; set Options::timeline");
  record_->write_trace(path, files);
}

}  // namespace sinter
