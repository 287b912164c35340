#include <sinter/core/comm/device_watch.h>

namespace sinter::comm {
namespace {

constexpr std::chrono::seconds kStopped{1};  // later than it wakes on a busy machine

}  // namespace

DeviceWatch::DeviceWatch(CollectiveBackend& backend, DeviceWatchOptions options)
    : backend_(backend), options_(std::move(options)), thread_([this] { run(); }) {}

DeviceWatch::~DeviceWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DeviceWatch::run() {
  const std::chrono::duration<double> poll(options_.poll_seconds);
  std::unique_lock lock(mutex_);
  Deadline looked = moved_;  // the thread may begin late
  while (!changed_.wait_for(lock, poll, [this] { return ends_; })) {
    lock.unlock();
    // From one look's beginning to the next one's: the process may be stopped anywhere, within a look too.
    const Deadline now = Clock::now();
    const auto gap = now - looked - std::chrono::duration_cast<Clock::duration>(poll);
    if (gap > kStopped) moved_ += gap;
    looked = now;
    try {
      look(now);
    } catch (const CommunicationError& error) {
      options_.on_error(error);
      return;
    } catch (const std::exception&) {
      return;  // of the device: whoever computes there meets it
    }
    lock.lock();
  }
}

void DeviceWatch::look(Deadline now) {
  backend_.check_work();
  const CollectiveBackend::Progress progress = backend_.progress();
  if (progress.ended == progress.queued || progress.ended != ended_work_) moved_ = now;
  ended_work_ = progress.ended;
  const std::chrono::duration<double> waited = now - moved_;
  if (waited.count() > options_.timeout_seconds) {
    throw_error<LateError>("{} has waited longer than {} s, of {} pieces of work {} have ended", options_.who,
                           options_.timeout_seconds, progress.queued, progress.ended);
  }
}

}  // namespace sinter::comm
