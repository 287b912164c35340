// Notices that a process of the job is gone, stopped or failed, and tells all others. Internal to core/comm.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sinter/core/comm/rendezvous.h>

namespace sinter::comm {

struct WatchOptions {
  double beat_seconds = 1.0;
  double lost_after_seconds = 10.0;  ///< of silence
  /// Called once, by the watch's thread, when a rank is lost: what waits for it must be woken.
  std::function<void(const std::string& text)> on_lost = {};
};

/// A thread in each process that says "alive" to rank 0, and on rank 0 to all. A connection that ends without
/// a farewell, silence, or a rank's own word that it failed make rank 0 tell all others which one it is; if
/// it is rank 0, each notices by itself. The threads of a process that computes, waits or saves go on, so
/// that none of these is taken for a death.
class RankWatch {
 public:
  RankWatch(Meeting meeting, WatchOptions options);
  /// Leaves in order, unless leave() or fail() was called.
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  const std::vector<Member>& members() const { return members_; }
  /// Notes that this rank begins an operation, "all_reduce".
  void begin(const char* operation);
  /// "all_reduce, operation 17".
  std::string present_operation() const;
  /// Which rank is furthest behind, as far as this one has heard; empty if nobody is behind this one.
  std::string laggard() const;

  /// Who was lost, in words that all ranks agree on; nothing if all are well.
  std::optional<std::string> failure() const;
  /// The same, waiting for it so long.
  std::optional<std::string> wait_for_failure(double seconds) const;

  /// Tells all others that this rank cannot go on. Then it counts as gone. From any thread, as leave().
  void fail(const std::string& reason);
  /// Goes in order: others are no longer concerned with this rank.
  void leave();

 private:
  struct Peer {
    int rank = 0;
    Channel channel;
    Deadline heard;
    bool gone = false;  // has said farewell
    int64_t count = 0;
    std::string operation = {};
  };

  void run();
  void beat(Deadline now);
  void take(Peer& peer);
  void lose(const Peer& peer, const std::string& why);
  void set_failure(const std::string& text);
  void end(const Message& last_words);
  void wake() const;

  const int rank_;
  const std::vector<Member> members_;
  const WatchOptions options_;
  int wake_[2] = {-1, -1};

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Peer> peers_;
  std::optional<std::string> failure_;
  std::optional<Message> last_words_;
  int64_t count_ = 0;
  std::string operation_ = "the start";
  struct {
    int rank = -1;
    int64_t count = 0;
    std::string operation;
  } behind_;
  std::mutex joining_;
  std::thread thread_;
};

}  // namespace sinter::comm
