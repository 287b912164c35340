#include <fcntl.h>
#include <unistd.h>

#include <sinter/core/base/log.h>
#include <sinter/core/comm/communication_error.h>
#include <sinter/core/comm/rank_watch.h>

namespace sinter::comm {
namespace {

Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

}  // namespace

RankWatch::RankWatch(Meeting meeting, WatchOptions options)
    : rank_(meeting.rank), members_(std::move(meeting.members)), options_(std::move(options)) {
  for (size_t i = 0; i < meeting.channels.size(); ++i) {
    if (!meeting.channels[i].is_open()) continue;
    peers_.push_back({.rank = rank_ == 0 ? static_cast<int>(i) : 0,
                      .channel = std::move(meeting.channels[i]),
                      .heard = Clock::now()});
  }
  if (pipe2(wake_, O_CLOEXEC | O_NONBLOCK) != 0)
    throw CommunicationError("[comm] the system has no pipe left for the watch over the ranks");
  thread_ = std::thread([this] { run(); });
}

RankWatch::~RankWatch() {
  leave();
  for (const int file : wake_) ::close(file);
}

void RankWatch::wake() const {
  const char byte = 0;
  [[maybe_unused]] const ssize_t written = ::write(wake_[1], &byte, 1);
}

void RankWatch::begin(const char* operation) {
  const std::lock_guard lock(mutex_);
  ++count_;
  operation_ = operation;
}

std::string RankWatch::present_operation() const {
  const std::lock_guard lock(mutex_);
  return count_ == 0 ? operation_ : fmt::format("{}, operation {}", operation_, count_);
}

std::string RankWatch::laggard() const {
  const std::lock_guard lock(mutex_);
  if (behind_.rank < 0 || behind_.count >= count_) return {};
  return fmt::format("{} in {}, operation {}", describe(members_, behind_.rank), behind_.operation,
                     behind_.count);
}

std::optional<std::string> RankWatch::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<std::string> RankWatch::wait_for_failure(double time) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, seconds(time), [this] { return failure_.has_value() || last_words_.has_value(); });
  return failure_;
}

void RankWatch::fail(const std::string& reason) {
  end({MessageKind::kLost, reason});
}

void RankWatch::leave() {
  end({MessageKind::kBye, {}});
}

void RankWatch::end(const Message& last_words) {
  {
    const std::lock_guard lock(mutex_);
    if (!last_words_) last_words_ = last_words;
  }
  changed_.notify_all();
  wake();
  const std::lock_guard lock(joining_);
  if (thread_.joinable()) thread_.join();
}

void RankWatch::set_failure(const std::string& text) {
  if (failure_) return;
  failure_ = text;
  log::warning("{}", text);
  for (Peer& peer : peers_) {
    if (rank_ == 0 && peer.channel.is_open() && !peer.gone) peer.channel.send({MessageKind::kLost, text});
  }
  changed_.notify_all();
}

void RankWatch::lose(const Peer& peer, const std::string& why) {
  const std::string place =
      peer.count == 0 ? "" : fmt::format(" (last heard of in {}, operation {})", peer.operation, peer.count);
  set_failure(fmt::format("[comm] {} is lost: {}{}", describe(members_, peer.rank), why, place));
}

void RankWatch::take(Peer& peer) {
  peer.channel.flush();
  peer.channel.receive();
  while (const std::optional<Message> message = peer.channel.take()) {
    peer.heard = Clock::now();
    if (message->kind == MessageKind::kBye) {
      peer.gone = true;
    } else if (message->kind == MessageKind::kLost) {
      // From rank 0: its verdict, or its own failure.
      rank_ != 0 && message->text.starts_with("[comm]") ? set_failure(message->text)
                                                        : lose(peer, message->text);
      peer.gone = peer.gone || rank_ == 0;
    } else if (message->kind == MessageKind::kBeat) {
      const auto words = unpack(message->text);
      if (!words || words->size() != 3) continue;
      const int rank = std::atoi((*words)[0].c_str());
      const int64_t count = std::atoll((*words)[1].c_str());
      if (rank_ == 0) {
        peer.count = count;
        peer.operation = (*words)[2];
      } else if (rank >= 0 && rank < static_cast<int>(members_.size())) {
        behind_ = {rank, count, (*words)[2]};
      }
    }
  }
  if (!peer.channel.is_open() && !peer.gone) {
    lose(peer, "its connection ended without a word, as of a process that was killed");
    peer.gone = true;
  }
}

void RankWatch::beat(Deadline now) {
  struct {
    int rank;
    int64_t count;
    std::string operation;
  } told{rank_, count_, operation_};
  for (const Peer& peer : peers_) {
    if (rank_ == 0 && !peer.gone && peer.count < told.count) told = {peer.rank, peer.count, peer.operation};
  }
  if (rank_ == 0) behind_ = {told.rank, told.count, told.operation};  // the others hear it from rank 0
  const Message message{MessageKind::kBeat,
                        pack({std::to_string(told.rank), std::to_string(told.count), told.operation})};
  for (Peer& peer : peers_) {
    if (peer.gone) continue;
    if (!peer.channel.has_unsent()) peer.channel.send(message);
    if (now - peer.heard > seconds(options_.lost_after_seconds)) {
      lose(peer, fmt::format("nothing was heard of it for {} s, as of a process that is stopped or a machine "
                             "that is gone",
                             options_.lost_after_seconds));
      peer.gone = true;
    }
  }
}

void RankWatch::run() {
  Deadline next = Clock::now();
  bool told = false;
  while (true) {
    std::vector<int> files = {wake_[0]};
    std::vector<bool> writes = {false};
    std::optional<std::string> lost;
    {
      const std::lock_guard lock(mutex_);
      for (const Peer& peer : peers_) {
        if (!peer.channel.is_open()) continue;
        files.push_back(peer.channel.file());
        writes.push_back(peer.channel.has_unsent());
      }
    }
    wait_for(files, writes, next);
    {
      const std::lock_guard lock(mutex_);
      char bytes[64];
      while (::read(wake_[0], bytes, sizeof bytes) > 0) continue;
      for (Peer& peer : peers_) {
        if (peer.channel.is_open()) take(peer);
      }
      const Deadline now = Clock::now();
      if (now >= next && !last_words_) {
        beat(now);
        next = now + seconds(options_.beat_seconds);
      }
      if (last_words_) {
        for (Peer& peer : peers_) {
          if (peer.channel.is_open()) peer.channel.send(*last_words_);
        }
        return;
      }
      if (failure_ && !told) {
        lost = failure_;
        told = true;
      }
    }
    if (lost && options_.on_lost) options_.on_lost(*lost);
  }
}

}  // namespace sinter::comm
