#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include <sinter/core/op/call_observer.h>
#include <sinter/core/op/profile.h>

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
  explicit Record(const Options& options) : options_(options) {}

  struct Call {
    const Op* op = nullptr;
    const Kernel* kernel = nullptr;
    std::string shapes;
    Device device;
    double host_us = 0, bytes = 0;
    std::unique_ptr<TimeMark> start, stop;
  };

  const Options& options() const { return options_; }

  void add(Call call) {
    const std::lock_guard lock(mutex_);
    unread_.push_back(std::move(call));
    if (unread_.size() > kMostUnread) read(kMostUnread / 2);
  }

  std::vector<Row> rows() {
    const std::lock_guard lock(mutex_);
    read(unread_.size());
    std::vector<Row> rows;
    for (const auto& [key, row] : rows_) rows.push_back(row);
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.device_us > b.device_us; });
    return rows;
  }

 private:
  void read(size_t count) {
    for (; count > 0; --count) {
      const Call& call = unread_.front();
      Row& row = rows_[{call.op, call.kernel, call.device, call.shapes}];
      if (row.calls == 0) {
        row.op = call.op->name();
        row.kernel = call.kernel->name;
        row.shapes = call.shapes;
        row.device = call.device;
      }
      row.device_us += call.stop->microseconds_since(*call.start);
      row.host_us += call.host_us;
      row.bytes += call.bytes;
      ++row.calls;
      unread_.pop_front();
    }
  }

  const Options options_;
  std::mutex mutex_;
  std::deque<Call> unread_;
  std::map<std::tuple<const Op*, const Kernel*, Device, std::string>, Row> rows_;
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
    current_.op = &op;
    current_.kernel = &kernel;
    current_.shapes = record_of_call_->options().by_shape ? shapes_of(query) : std::string();
    current_.bytes = bytes_of(query);
    current_.device = stream.device;
    current_.start = backend_of(stream.device).mark_time(stream);
    began_ = std::chrono::steady_clock::now();
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

std::vector<OpProfile::Row> OpProfile::rows() const {
  return record_->rows();
}

std::string OpProfile::table() const {
  const std::vector<Row> listed = rows();
  Row total{.op = "total", .kernel = "", .shapes = "", .device = {}};
  for (const Row& row : listed) {
    total.calls += row.calls;
    total.device_us += row.device_us;
    total.host_us += row.host_us;
  }
  const auto line = [&total](const Row& row, const std::string& device) {
    const auto calls = static_cast<double>(std::max<uint64_t>(row.calls, 1));
    const double share = total.device_us > 0 ? 100.0 * row.device_us / total.device_us : 0.0;
    return fmt::format("{:<24} {:<16} {:<8} {:>8} {:>11.3f} {:>6.1f} {:>10.2f} {:>10.2f}{}{}\n", row.op,
                       row.kernel, device, row.calls, row.device_us / 1000.0, share, row.device_us / calls,
                       row.host_us / calls, row.shapes.empty() ? "" : "  ", row.shapes);
  };
  std::string text = fmt::format("{:<24} {:<16} {:<8} {:>8} {:>11} {:>6} {:>10} {:>10}\n", "op", "kernel",
                                 "device", "calls", "time ms", "%", "us/call", "host us");
  for (const Row& row : listed) text += line(row, to_string(row.device));
  return text + line(total, "");
}

}  // namespace sinter
