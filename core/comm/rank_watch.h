// Notices that a process of the job is gone, stopped or failed, and tells all others. Internal to core/comm.
#pragma once

#include <condition_variable>
#include <deque>
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
};

/// A thread in each process that says "alive" to rank 0, and on rank 0 to all. A connection that ends without
/// a farewell, silence, or a rank's own word that it failed make rank 0 tell all others which one it is; if
/// it is rank 0, each notices by itself. The threads of a process that computes, waits or saves go on, so
/// that none of these is taken for a death; a process that was stopped itself notices that its own time has
/// gaps, and does not blame others for them.
///
/// Beside this, rank 0 and each of the others can send each other data over the same connections.
class RankWatch {
 public:
  RankWatch(Meeting meeting, WatchOptions options);
  /// Leaves in order, unless leave() or fail() was called.
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<Member>& members() const { return members_; }
  /// Where this rank is on the way to rank 0, as Meeting::address.
  const Address& address() const { return address_; }

  /// Called once, by the watch's thread, when a rank is lost: what waits for it must be woken. Takes the
  /// place of the one before, which does not run any more when this returns; called at once if a rank is lost
  /// already.
  void on_lost(std::function<void(const std::string& text)> call);

  /// Sends to rank 0, or from there to another rank. Does not wait.
  void send(int rank, const std::string& data);
  /// The next data from there. Throws CommunicationError if a rank is lost, this one ends, `ends` says so
  /// when it is woken, or the time is over (LateError).
  std::string receive(int rank, Deadline deadline, const std::function<bool()>& ends = {});
  /// Lets receive() look at `ends`.
  void wake_receivers() const { changed_.notify_all(); }
  /// The bits that any rank gave to the call before; 0 at the first call. Throws CommunicationError as
  /// receive().
  uint64_t agree(uint64_t bits, double timeout_seconds);
  /// Gives every rank the parts of all, by rank. All call it, in the same order. Throws CommunicationError,
  /// which names `what` and the rank, if one does not in time; the watch then tells all others.
  std::vector<std::string> exchange(const std::string& part, const char* what, double timeout_seconds);

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
    std::deque<std::string> inbox = {};
    size_t inbox_bytes = 0;
    std::deque<uint64_t> asked = {};  // by it, and not joined with those of others yet
  };

  Peer& peer_of(int rank);
  void run();
  void tell_last_words();
  void join_bits();
  void beat(Deadline now);
  void take(Peer& peer);
  void lose(const Peer& peer, const std::string& why);
  void set_failure(const std::string& text);
  void end(const Message& last_words);
  void wake() const;

  const int rank_;
  const std::vector<Member> members_;
  const Address address_;
  const WatchOptions options_;
  int wake_[2] = {-1, -1};

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Peer> peers_;
  std::optional<std::string> failure_;
  std::optional<Message> last_words_;
  std::deque<uint64_t> asked_, agreed_;  // the first on rank 0 only
  bool has_asked_ = false;
  int64_t count_ = 0;
  std::string operation_ = "the start";
  struct {
    int rank = -1;
    int64_t count = 0;
    std::string operation;
  } behind_;
  std::mutex calling_;  // guards what follows; taken before mutex_
  std::function<void(const std::string& text)> on_lost_;
  bool told_ = false;
  std::mutex joining_;
  std::thread thread_;
};

}  // namespace sinter::comm
