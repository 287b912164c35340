#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <string_view>
#include <thread>

#include <fmt/core.h>
#include <unistd.h>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/nn/log/event_format.h>
#include <sinter/nn/log/log_file.h>
#include <sinter/nn/log/run_log.h>
#include <sinter/nn/log/scalars.h>

namespace sinter::nn {
namespace {

constexpr std::string_view kEventPrefix = "events.out.tfevents.";
constexpr size_t kMostQueued =
    1 << 16;  // records that wait for a writer who hangs, as on a lost network disk

/// A record in the words of each file; an event alone has no line of JSON.
struct Queued {
  std::string json_line, event;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

void make_folders(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) check_file_call(-error.value(), "make the folder", folder);
}

std::vector<std::string> names_in(const std::filesystem::path& folder, FileSystem& files) {
  std::vector<std::string> names;
  const int result = files.list(folder, names);
  if (result != -ENOENT) check_file_call(result, "list", folder);
  return names;
}

/// TensorBoard reads a folder's files in the order of their names, so the number that each has, its second,
/// must be greater than those before it, even within a second or after the clock was set back.
std::filesystem::path new_event_file(const std::filesystem::path& folder, FileSystem& files) {
  auto number = static_cast<int64_t>(seconds_now());
  for (const std::string& name : names_in(folder, files)) {
    if (!name.starts_with(kEventPrefix)) continue;
    int64_t other = 0;
    const char* digits = name.data() + kEventPrefix.size();
    const auto [end, error] = std::from_chars(digits, name.data() + name.size(), other);
    constexpr int64_t kMost = 9'999'999'999;  // ten digits
    if (error == std::errc{} && end - digits == 10 && other < kMost) number = std::max(number, other + 1);
  }
  return folder / fmt::format("{}{:010}.{}.{}", kEventPrefix, number, host_name(), ::getpid());
}

}  // namespace

/// The files, the records that wait for them, and the thread that carries these over.
class RunLog::Writer {
 public:
  Writer(const std::filesystem::path& folder, const RunLogOptions& options, FileSystem& files)
      : period_(options.seconds) {
    const std::filesystem::path json = folder / kJsonName;
    if (options.json) {
      if (options.resume_at && std::filesystem::exists(json)) cut_scalars(json, *options.resume_at, files);
      json_ = std::make_unique<LogFile>(json, files);
    }
    if (options.tensorboard) {
      events_ = std::make_unique<LogFile>(new_event_file(folder, files), files);
      events_->add(event_record(version_event(seconds_now())));
      if (options.resume_at) events_->add(event_record(start_event(seconds_now(), *options.resume_at + 1)));
      events_->write();
    }
    thread_ = std::thread([this] { run(); });
  }

  ~Writer() {
    stop();
    write_or_warn();
  }

  void queue(Queued queued) {
    const std::lock_guard lock(queue_mutex_);
    SINTER_CHECK(!stopped_, "[run_log] expected an open log but it was closed");
    if (queue_.size() < kMostQueued) {
      queue_.push_back(std::move(queued));
    } else {
      ++dropped_;
    }
  }

  /// Carries over what is queued and writes it. Throws the first file's IoError when all were tried.
  void write() {
    const std::lock_guard lock(file_mutex_);
    std::vector<Queued> records;
    {
      const std::lock_guard queue_lock(queue_mutex_);
      records.swap(queue_);
    }
    for (const auto& [json_line, event] : records) {
      if (json_ && !json_line.empty()) json_->add(json_line);
      if (events_) events_->add(event_record(event));
    }
    std::string failure;
    for (LogFile* file : {json_.get(), events_.get()}) {
      try {
        if (file != nullptr) file->write();
      } catch (const IoError& error) {
        if (failure.empty()) failure = error.what();
      }
    }
    note(failure);
    if (!failure.empty()) throw IoError(failure);
  }

  /// Ends the thread; nothing more is taken.
  void stop() {
    {
      const std::lock_guard lock(queue_mutex_);
      stopped_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void sync() {
    const std::lock_guard lock(file_mutex_);
    for (LogFile* file : {json_.get(), events_.get()}) {
      if (file != nullptr) file->sync();
    }
  }

  std::string failure() const {
    const std::lock_guard lock(queue_mutex_);
    return failure_;
  }

 private:
  void run() {
    std::unique_lock lock(queue_mutex_);
    while (!stopped_) {
      wake_.wait_for(lock, period_, [this] { return stopped_; });
      if (stopped_ || (queue_.empty() && failure_.empty())) continue;
      lock.unlock();
      write_or_warn();
      lock.lock();
    }
  }

  void write_or_warn() {
    try {
      write();
    } catch (const IoError& error) {
      if (!std::exchange(warned_, true))
        log::warning("{}; training goes on, and the log is tried again", error.what());
    } catch (const std::exception& error) {  // no memory: what was queued is lost
      const std::lock_guard lock(queue_mutex_);
      failure_ = fmt::format("[run_log] {}", error.what());
    }
  }

  /// Keeps what write() has met.
  void note(const std::string& failure) {
    const std::lock_guard lock(queue_mutex_);
    const int64_t lost = dropped_ + (json_ ? json_->dropped() : 0) + (events_ ? events_->dropped() : 0);
    failure_ = failure;
    if (failure.empty() && lost > 0) {
      failure_ = fmt::format("[run_log] {} records were lost while they could not be written", lost);
    }
  }

  std::chrono::duration<double> period_;
  std::mutex file_mutex_;  // taken before the other one
  std::unique_ptr<LogFile> json_, events_;
  bool warned_ = false;  // of the thread, and of the destructor after it

  mutable std::mutex queue_mutex_;
  std::condition_variable wake_;
  std::vector<Queued> queue_;
  std::string failure_;
  int64_t dropped_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

RunLog::RunLog(std::filesystem::path folder, const RunLogOptions& options, FileSystem& files)
    : folder_(std::move(folder)) {
  SINTER_CHECK(options.seconds > 0 && options.seconds <= 3600,
               "[run_log] expected seconds between writes from 0 to 3600 but got {}", options.seconds);
  SINTER_CHECK(!options.resume_at || *options.resume_at >= 0, "[run_log] expected a step >= 0 but got {}",
               *options.resume_at);
  SINTER_CHECK(options.resume_at || !is_in(folder_, files),
               "[run_log] {} has the log of another run; go on with it with .resume_at, or name another "
               "folder",
               folder_.string());
  make_folders(folder_);
  writer_ = std::make_unique<Writer>(folder_, options, files);
}

RunLog::~RunLog() = default;

bool RunLog::is_in(const std::filesystem::path& folder, FileSystem& files) {
  const std::vector<std::string> names = names_in(folder, files);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    if (name.starts_with(kEventPrefix)) return true;
    std::error_code unknown;
    return name == kJsonName && std::filesystem::file_size(folder / name, unknown) > 0 && !unknown;
  });
}

void RunLog::scalar(std::string tag, double value, int64_t step) {
  std::vector<std::pair<std::string, double>> values;
  values.emplace_back(std::move(tag), value);
  scalars(step, std::move(values));
}

void RunLog::scalars(int64_t step, std::vector<std::pair<std::string, double>> values) {
  ScalarRecord record{.step = step, .time = seconds_now(), .values = std::move(values)};
  check_record(record);
  writer_->queue({to_json_line(record), scalar_event(record)});
}

void RunLog::image(const std::string& tag, std::string png, int64_t height, int64_t width, int64_t channels,
                   int64_t step) {
  const double now = seconds_now();
  check_record({.step = step, .time = now, .values = {{tag, 0.0}}});
  SINTER_CHECK(!png.empty() && height > 0 && width > 0 && channels > 0,
               "[run_log] expected a picture but got {} bytes of {}x{}x{}", png.size(), height, width,
               channels);
  writer_->queue({"", image_event({.step = step,
                                   .time = now,
                                   .tag = tag,
                                   .height = height,
                                   .width = width,
                                   .channels = channels,
                                   .png = std::move(png)})});
}

void RunLog::hyper_parameters(const std::map<std::string, HyperParameter>& values) {
  writer_->queue({"", hyper_parameters_event(seconds_now(), values)});
}

void RunLog::flush() {
  writer_->write();
}

void RunLog::close() {
  writer_->stop();
  writer_->write();
  writer_->sync();
  if (const std::string failure = writer_->failure(); !failure.empty()) throw IoError(failure);
}

std::string RunLog::failure() const {
  return writer_->failure();
}

}  // namespace sinter::nn
