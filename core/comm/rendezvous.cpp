#include <algorithm>
#include <thread>

#include <sinter/core/base/log.h>
#include <sinter/core/comm/communication_error.h>
#include <sinter/core/comm/hello.h>
#include <sinter/core/comm/link/hmac.h>
#include <sinter/core/comm/rendezvous.h>

namespace sinter::comm {
namespace {

constexpr std::chrono::seconds kGreeting{5};  // from a connection to the end of a rank's first words
constexpr uint32_t kMostGreeting = 4096;
constexpr size_t kNonce = 16;
constexpr size_t kMostStrangers = 64;  // at a time, beside the ranks
constexpr int kMostComplaints = 8;
constexpr const char* kOtherKey = "it does not know the job's key (SINTER_JOB_KEY)";

/// The numbers in a list, in words: "1, 2 and 5 more".
std::string listing(const std::vector<int>& ranks) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMost); ++i)
    text += fmt::format("{}{}", i ? ", " : "", ranks[i]);
  return ranks.size() > kMost ? fmt::format("{} and {} more", text, ranks.size() - kMost) : text;
}

/// Rank 0's side.
class Host {
 public:
  Host(const ProcessEnvironment& environment, const MeetingOptions& options)
      : environment_(environment),
        options_(options),
        own_(own_hello(environment, options.library, options.purpose)),
        deadline_(after(options.timeout_seconds)) {
    meeting_.channels.resize(static_cast<size_t>(environment.size));
    meeting_.members.resize(static_cast<size_t>(environment.size));
    meeting_.members[0] = {own_.host, own_.process};
    listen();
  }

  Meeting meet() {
    while (come_ < environment_.size) {
      if (Clock::now() >= deadline_) fail(missing());
      step();
    }
    std::vector<std::string> text;
    for (const Member& member : meeting_.members) {
      text.push_back(member.host);
      text.push_back(std::to_string(member.process));
    }
    tell_all({MessageKind::kWelcome, pack(text)});
    find_address();
    return std::move(meeting_);
  }

 private:
  struct Guest {
    Channel channel;
    Deadline until;
    std::string hello = {};  // its words, once it was asked
    std::string nonce = {};
  };

  void listen() {
    std::string reason;
    for (int i = 0; i < environment_.ports && listeners_.empty(); ++i) {
      listeners_ = listen_at(
          listening_places(environment_.address, environment_.port + i, environment_.interface), reason);
    }
    if (!listeners_.empty()) return;
    const int first = environment_.port, last = first + environment_.ports - 1;
    throw_error<CommunicationError>(
        "[comm] rank 0 cannot listen: {} of {}: {}; set MASTER_PORT to one that is free",
        first == last ? fmt::format("port {}", first) : fmt::format("ports {} to {}", first, last), own_.host,
        reason);
  }

  void step() {
    std::vector<int> files;
    for (const Socket& listener : listeners_) files.push_back(listener.file());
    for (const Guest& guest : guests_) files.push_back(guest.channel.file());
    for (const Channel& channel : meeting_.channels) {
      if (channel.is_open()) files.push_back(channel.file());
    }
    wait_for(files, {}, std::min(deadline_, Clock::now() + std::chrono::milliseconds(200)));
    for (const Socket& listener : listeners_) {
      while (std::optional<Socket> socket = accept_from(listener)) {
        guests_.push_back({Channel(std::move(*socket)), Clock::now() + kGreeting});
        guests_.back().channel.set_limit(kMostGreeting);
        if (guests_.size() > kMostStrangers + static_cast<size_t>(environment_.size))
          guests_.erase(guests_.begin());
      }
    }
    for (Guest& guest : guests_) greet(guest);
    std::erase_if(guests_,
                  [](const Guest& guest) { return !guest.channel.is_open() || Clock::now() > guest.until; });
    for (int rank = 1; rank < environment_.size; ++rank) {
      Channel& channel = meeting_.channels[static_cast<size_t>(rank)];
      if (meeting_.members[static_cast<size_t>(rank)].process == 0) continue;
      channel.receive();
      if (!channel.is_open())
        fail(fmt::format("[comm] {} went away before all {} ranks had come", describe(meeting_.members, rank),
                         environment_.size));
    }
  }

  void greet(Guest& guest) {
    guest.channel.receive();
    const std::optional<Message> message = guest.channel.take();
    if (message && guest.hello.empty()) return ask(guest, *message);
    if (message) return judge(guest, *message);
    if (!guest.channel.is_open() && !guest.hello.empty())
      complain(fmt::format(
          "[comm] {} went when it was asked for the job's key; is its SINTER_JOB_KEY another one?",
          describe(*read_hello(guest.hello))));
  }

  void ask(Guest& guest, const Message& message) {
    const std::optional<Hello> hello =
        message.kind == MessageKind::kHello ? read_hello(message.text) : std::nullopt;
    if (!hello) return guest.channel.close();
    if (hello->job != own_.job) return turn_away(guest, MessageKind::kRefuse, "another job listens there");
    if (hello->version.empty()) return turn_away(guest, MessageKind::kFatal, mistake_in(*hello, own_));
    guest.hello = message.text;
    guest.nonce = random_bytes(kNonce);
    guest.channel.send({MessageKind::kChallenge, pack({guest.nonce, proof(environment_.key, Side::kRankZero,
                                                                          guest.hello, guest.nonce)})});
  }

  void judge(Guest& guest, const Message& message) {
    const Hello hello = *read_hello(guest.hello);
    const std::string expected = proof(environment_.key, Side::kOther, guest.hello, guest.nonce);
    if (message.kind != MessageKind::kProof || !same_digest(message.text, expected)) {
      complain(fmt::format("[comm] {} was turned away: {}", describe(hello), kOtherKey));
      return turn_away(guest, MessageKind::kRefuse, kOtherKey);
    }
    std::string mistake = mistake_in(hello, own_);
    if (mistake.empty() && meeting_.members[static_cast<size_t>(hello.rank)].process != 0) {
      mistake = fmt::format("[comm] {} came though there is already {}", describe(hello),
                            describe(meeting_.members, hello.rank));
    }
    if (!mistake.empty()) {
      complain(mistake + "; it was turned away");
      mistake = mistake.substr(sizeof "[comm]");
      turned_away_ = "; one was turned away: " + mistake;
      // Of another job, whose rank 0 may listen at another port.
      const bool is_other = hello.size != own_.size || hello.purpose != own_.purpose;
      return turn_away(guest, is_other ? MessageKind::kRefuse : MessageKind::kFatal,
                       is_other ? mistake : "[comm] " + mistake);
    }
    guest.channel.send({MessageKind::kTaken, {}});
    guest.channel.set_limit(Channel::kMostBytes);
    meeting_.members[static_cast<size_t>(hello.rank)] = {hello.host, hello.process};
    meeting_.channels[static_cast<size_t>(hello.rank)] = std::move(guest.channel);
    ++come_;
  }

  static void turn_away(Guest& guest, MessageKind kind, const std::string& why) {
    guest.channel.send({kind, why});
    guest.channel.close();
  }

  void complain(const std::string& text) {
    if (complaints_++ < kMostComplaints) log::warning("{}", text);
  }

  std::string missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < environment_.size; ++rank) {
      if (meeting_.members[static_cast<size_t>(rank)].process == 0) ranks.push_back(rank);
    }
    return fmt::format("[comm] of {} ranks these did not come within {} s: {}{}", environment_.size,
                       options_.timeout_seconds, listing(ranks), turned_away_);
  }

  void find_address() {
    for (const Channel& channel : meeting_.channels) {
      const std::optional<Address> near = channel.is_open() ? near_end(channel.file()) : std::nullopt;
      if (near && (meeting_.address.length == 0 || !near->is_loopback())) meeting_.address = *near;
      if (near && !near->is_loopback()) return;
    }
  }

  void tell_all(const Message& message) {
    for (Channel& channel : meeting_.channels) {
      if (channel.is_open()) channel.send(message);
    }
  }

  [[noreturn]] void fail(const std::string& text) {
    tell_all({MessageKind::kFatal, text});
    throw CommunicationError(text);
  }

  const ProcessEnvironment& environment_;
  const MeetingOptions& options_;
  const Hello own_;
  const Deadline deadline_;
  std::vector<Socket> listeners_;
  std::vector<Guest> guests_;
  Meeting meeting_;
  int come_ = 1;
  int complaints_ = 0;
  std::string turned_away_;
};

/// The next message, or nothing: the time is over, or the connection has ended.
std::optional<Message> next_message(Channel& channel, Deadline deadline) {
  while (true) {
    if (std::optional<Message> message = channel.take()) return message;
    if (!channel.is_open() || Clock::now() >= deadline) return std::nullopt;
    wait_for({channel.file()}, {channel.has_unsent()}, deadline);
    channel.flush();
    channel.receive();
  }
}

/// The side of another rank.
class Visitor {
 public:
  Visitor(const ProcessEnvironment& environment, const MeetingOptions& options)
      : environment_(environment),
        options_(options),
        own_(own_hello(environment, options.library, options.purpose)),
        place_(endpoint(environment.address, environment.port)),
        deadline_(after(options.timeout_seconds)) {}

  Meeting meet() {
    std::optional<Channel> channel;
    while (!(channel = find_host())) {
      if (Clock::now() >= deadline_) {
        throw_error<CommunicationError>("[comm] rank {} did not reach rank 0 at {} within {} s: {}",
                                        own_.rank, place_, options_.timeout_seconds, reasons());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    // Rank 0 tells who is missing when its time is over, a little later than this one's.
    const std::optional<Message> answer = next_message(*channel, deadline_ + kGreeting);
    if (answer && answer->kind == MessageKind::kFatal) throw CommunicationError(printable(answer->text));
    const auto words = answer && answer->kind == MessageKind::kWelcome ? unpack(answer->text) : std::nullopt;
    if (!words || words->size() != 2 * static_cast<size_t>(own_.size)) {
      throw_error<CommunicationError>("[comm] rank 0 at {} {} before all {} ranks had come", place_,
                                      channel->is_open() ? "did not answer any more" : "went away",
                                      own_.size);
    }
    Meeting meeting{.rank = own_.rank, .members = {}, .channels = {}};
    for (size_t i = 0; i < words->size(); i += 2) {
      const auto process = to_number((*words)[i + 1], 1, 1 << 30);
      meeting.members.push_back({printable((*words)[i]), static_cast<int>(process.value_or(0))});
    }
    meeting.address = near_end(channel->file()).value_or(Address());
    meeting.channels.push_back(std::move(*channel));
    return meeting;
  }

 private:
  /// A channel to rank 0 that has taken this rank in.
  std::optional<Channel> find_host() {
    for (int i = 0; i < environment_.ports; ++i) {
      const Deadline until = std::min(deadline_, Clock::now() + kGreeting);
      std::string reason;
      std::optional<Socket> socket = connect_to(environment_.address, environment_.port + i, until, reason);
      if (socket) {
        Channel channel(std::move(*socket));
        if (introduce(channel, until, reason)) return channel;
      }
      if (std::find(reasons_.begin(), reasons_.end(), reason) == reasons_.end()) reasons_.push_back(reason);
    }
    return std::nullopt;
  }

  bool introduce(Channel& channel, Deadline until, std::string& reason) {
    const std::string hello = write_hello(own_, random_bytes(kNonce));
    channel.send({MessageKind::kHello, hello});
    std::optional<Message> answer = next_message(channel, until);
    const auto words =
        answer && answer->kind == MessageKind::kChallenge ? unpack(answer->text) : std::nullopt;
    bool is_of_job = false;
    if (words && words->size() == 2) {
      is_of_job = same_digest((*words)[1], proof(environment_.key, Side::kRankZero, hello, (*words)[0]));
      if (is_of_job) {
        channel.send({MessageKind::kProof, proof(environment_.key, Side::kOther, hello, (*words)[0])});
        answer = next_message(channel, until);
      } else {
        answer = Message{MessageKind::kRefuse, std::string("another job listens there: ") + kOtherKey};
      }
    }
    if (is_of_job && answer && answer->kind == MessageKind::kTaken) return true;
    const bool is_fatal = answer && answer->kind == MessageKind::kFatal;
    // What is not of this job has a say only where no other port is left.
    if (is_fatal && (is_of_job || environment_.ports == 1)) throw CommunicationError(printable(answer->text));
    const bool is_refused = is_fatal || (answer && answer->kind == MessageKind::kRefuse);
    reason = is_refused ? printable(answer->text) : "what listens there is no rank 0 of this job";
    if (is_refused && environment_.ports == 1)
      throw_error<CommunicationError>("[comm] rank {} was turned away at {}: {}", own_.rank, place_, reason);
    return false;
  }

  /// In the order in which they came first.
  std::string reasons() const {
    std::string text;
    for (const std::string& reason : reasons_) text += (text.empty() ? "" : "; then: ") + reason;
    return text;
  }

  const ProcessEnvironment& environment_;
  const MeetingOptions& options_;
  const Hello own_;
  const std::string place_;
  const Deadline deadline_;
  std::vector<std::string> reasons_;
};

}  // namespace

std::string describe(const std::vector<Member>& members, int rank) {
  const Member& member = members.at(static_cast<size_t>(rank));
  return fmt::format("rank {} ({}, process {})", rank, member.host, member.process);
}

Meeting meet(const ProcessEnvironment& environment, const MeetingOptions& options) {
  return environment.rank == 0 ? Host(environment, options).meet() : Visitor(environment, options).meet();
}

}  // namespace sinter::comm
