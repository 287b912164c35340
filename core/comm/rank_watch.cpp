#include <algorithm>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <sinter/core/base/log.h>
#include <sinter/core/comm/collective_backend.h>
#include <sinter/core/comm/rank_watch.h>

namespace sinter::comm {
namespace {

constexpr size_t kMostWaiting =
    size_t{2} * Channel::kMostBytes;  // data of one rank that nobody has asked for
constexpr size_t kMostAsked = 1000;
constexpr std::chrono::seconds kFarewell{2};  // to send what is queued, at the end

Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

}  // namespace

RankWatch::RankWatch(Meeting meeting, WatchOptions options)
    : rank_(meeting.rank),
      members_(std::move(meeting.members)),
      address_(meeting.address),
      options_(options) {
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

RankWatch::Peer& RankWatch::peer_of(int rank) {
  for (Peer& peer : peers_) {
    if (peer.rank == rank) return peer;
  }
  throw_error<Error>("[comm] rank {} has no connection to rank {}", rank_, rank);
}

void RankWatch::on_lost(std::function<void(const std::string& text)> call) {
  const std::lock_guard calling(calling_);
  on_lost_ = std::move(call);
  const std::optional<std::string> lost = failure();
  told_ = lost.has_value() && on_lost_ != nullptr;
  if (told_) on_lost_(*lost);
}

void RankWatch::send(int rank, const std::string& data) {
  const std::lock_guard lock(mutex_);
  Channel& channel = peer_of(rank).channel;
  if (!channel.is_open()) return;  // whoever waits for an answer learns why
  channel.send({MessageKind::kPart, data});
  if (channel.has_unsent()) wake();
}

std::string RankWatch::receive(int rank, Deadline deadline, const std::function<bool()>& ends) {
  std::unique_lock lock(mutex_);
  Peer& peer = peer_of(rank);
  const auto is_over = [&] {
    return !peer.inbox.empty() || failure_ || last_words_ || peer.gone || (ends && ends());
  };
  const bool in_time = changed_.wait_until(lock, deadline, is_over);
  if (peer.inbox.empty()) {  // else it had come before whatever has happened since
    if (failure_) throw CommunicationError(*failure_);
    if (!in_time) throw LateError(fmt::format("nothing came from {}", describe(members_, rank)));
    throw CommunicationError(!last_words_ && peer.gone ? describe(members_, rank) + " has left"
                                                       : "this rank has ended");
  }
  std::string data = std::move(peer.inbox.front());
  peer.inbox.pop_front();
  peer.inbox_bytes -= data.size();
  return data;
}

uint64_t RankWatch::agree(uint64_t bits, double timeout_seconds) {
  std::unique_lock lock(mutex_);
  if (rank_ == 0) {
    asked_.push_back(bits);
    join_bits();
  } else if (Channel& channel = peers_.front().channel; channel.is_open()) {
    channel.send({MessageKind::kBits, std::to_string(bits)});
  }
  wake();
  if (!std::exchange(has_asked_, true)) return 0;
  const bool in_time = changed_.wait_until(lock, after(timeout_seconds),
                                           [&] { return !agreed_.empty() || failure_ || last_words_; });
  if (failure_) throw CommunicationError(*failure_);
  if (!in_time) throw LateError(fmt::format("no agreement within {} s", timeout_seconds));
  if (agreed_.empty()) throw CommunicationError("this rank has ended");
  const uint64_t all = agreed_.front();
  agreed_.pop_front();
  return all;
}

// Rank 0's thread does so as soon as all have asked: the answer is there before the next call.
void RankWatch::join_bits() {
  const auto have_all = [&] {
    return !asked_.empty() &&
           std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.asked.empty(); });
  };
  while (have_all()) {
    uint64_t all = asked_.front();
    asked_.pop_front();
    for (Peer& peer : peers_) {
      all |= peer.asked.front();
      peer.asked.pop_front();
    }
    agreed_.push_back(all);
    for (Peer& peer : peers_) {
      if (peer.channel.is_open()) peer.channel.send({MessageKind::kBits, std::to_string(all)});
    }
  }
  changed_.notify_all();
}

std::vector<std::string> RankWatch::exchange(const std::string& part, const char* what,
                                             double timeout_seconds) {
  const Deadline deadline = after(timeout_seconds);
  int from = 0;
  try {
    if (rank_ != 0) {
      send(0, part);
      // Rank 0 says who is late, a little later.
      const auto parts = unpack(receive(0, deadline + seconds(5)));
      if (parts && parts->size() == members_.size()) return *parts;
      throw CommunicationError(fmt::format("[comm] {} has answered with something else in the exchange of {}",
                                           describe(members_, 0), what));
    }
    std::vector<std::string> parts = {part};
    for (from = 1; from < size(); ++from) parts.push_back(receive(from, deadline));
    const std::string all = pack(parts);
    for (int to = 1; to < size(); ++to) send(to, all);
    return parts;
  } catch (const LateError&) {
    const std::string text =
        fmt::format("[comm] {} is lost: it took no part in the exchange of {} within {} s",
                    describe(members_, from), what, timeout_seconds);
    const std::lock_guard lock(mutex_);
    set_failure(text);
    throw CommunicationError(*failure_);
  }
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
  wake();
}

void RankWatch::lose(const Peer& peer, const std::string& why) {
  const std::string place =
      peer.count == 0 ? "" : fmt::format(" (last heard of in {}, operation {})", peer.operation, peer.count);
  set_failure(fmt::format("[comm] {} is lost: {}{}", describe(members_, peer.rank), why, place));
}

void RankWatch::take(Peer& peer) {
  peer.channel.flush();
  if (peer.channel.receive()) peer.heard = Clock::now();  // also of a message that takes long
  while (std::optional<Message> message = peer.channel.take()) {
    if (message->kind == MessageKind::kBye) {
      peer.gone = true;
      changed_.notify_all();
    } else if (message->kind == MessageKind::kLost) {
      // From rank 0: its verdict, or its own failure.
      const std::string text = printable(message->text);
      rank_ != 0 && text.starts_with("[comm]") ? set_failure(text) : lose(peer, text);
      peer.gone = peer.gone || rank_ == 0;
    } else if (message->kind == MessageKind::kPart) {
      peer.inbox_bytes += message->text.size();
      peer.inbox.push_back(std::move(message->text));
      changed_.notify_all();
      if (peer.inbox_bytes <= kMostWaiting) continue;
      lose(peer, "it sends data that nobody has asked for");
      peer.channel.close();
      peer.gone = true;
    } else if (message->kind == MessageKind::kBits) {
      const auto bits = to_number(message->text, 0, INT64_MAX);
      if (!bits || peer.asked.size() >= kMostAsked) continue;
      (rank_ == 0 ? peer.asked : agreed_).push_back(static_cast<uint64_t>(*bits));
      rank_ == 0 ? join_bits() : changed_.notify_all();
    } else if (message->kind == MessageKind::kBeat) {
      const auto words = unpack(message->text);
      if (!words || words->size() != 3) continue;
      const auto rank = to_number((*words)[0], 0, size() - 1);
      const auto count = to_number((*words)[1], 0, INT64_MAX);
      if (!rank || !count) continue;
      const std::string operation = printable((*words)[2]);
      if (rank_ == 0) {
        peer.count = *count;
        peer.operation = operation;
      } else {
        behind_ = {static_cast<int>(*rank), *count, operation};
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

void RankWatch::tell_last_words() {
  const Deadline until = Clock::now() + kFarewell;
  for (Peer& peer : peers_) {
    Channel& channel = peer.channel;
    if (channel.is_open()) channel.send(*last_words_);
    while (channel.is_open() && channel.has_unsent() && Clock::now() < until) {
      wait_for({channel.file()}, {true}, until);
      channel.flush();
      channel.receive();
      while (channel.take()) continue;
    }
  }
}

void RankWatch::run() {
  Deadline next = Clock::now(), looked = next;
  bool ends = false;
  while (!ends) {
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
      if (now - std::max(looked, next) > seconds(options_.lost_after_seconds / 2)) {
        log::info(
            "[comm] this process was stopped for {:.1f} s; it gives the others the time that it has lost",
            std::chrono::duration<double>(now - std::max(looked, next)).count());
        for (Peer& peer : peers_) peer.heard = now;
      }
      looked = now;
      if (now >= next && !last_words_) {
        beat(now);
        next = now + seconds(options_.beat_seconds);
      }
      ends = last_words_.has_value();
      if (ends) tell_last_words();
      lost = failure_;
    }
    const std::lock_guard calling(calling_);
    if (!lost || told_ || ends || on_lost_ == nullptr) continue;
    told_ = true;
    on_lost_(*lost);
  }
}

}  // namespace sinter::comm
