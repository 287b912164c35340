#include <cstring>
#include <thread>

#include <sys/socket.h>
#include <unistd.h>

#include <sinter/core/comm/communication_error.h>
#include <sinter/core/comm/rendezvous.h>

namespace sinter::comm {
namespace {

constexpr std::chrono::seconds kGreeting{5};  // from a connection to the words that a rank begins with
constexpr uint32_t kMostGreeting = 4096;

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

Deadline after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e6)));
}

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
  Host(const ProcessEnvironment& environment, double timeout)
      : environment_(environment), timeout_(timeout), deadline_(after(timeout)) {
    meeting_.channels.resize(static_cast<size_t>(environment.size));
    meeting_.members.resize(static_cast<size_t>(environment.size));
    meeting_.members[0] = {host_name(), getpid()};
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
    return std::move(meeting_);
  }

 private:
  struct Guest {
    Channel channel;
    Deadline until;
  };

  void listen() {
    for (int i = 0; i < environment_.ports && !listener_.is_open(); ++i) {
      if (std::optional<Socket> socket = listen_on(environment_.port + i)) listener_ = std::move(*socket);
    }
    if (listener_.is_open()) return;
    throw_error<CommunicationError>(
        "[comm] rank 0 cannot listen: {} of {} in use; set MASTER_PORT to one that is free",
        environment_.ports == 1
            ? fmt::format("port {}", environment_.port)
            : fmt::format("ports {} to {}", environment_.port, environment_.port + environment_.ports - 1),
        environment_.ports == 1 ? host_name() + " is" : host_name() + " are");
  }

  void step() {
    std::vector<int> files = {listener_.file()};
    for (const Guest& guest : guests_) files.push_back(guest.channel.file());
    for (const Channel& channel : meeting_.channels) {
      if (channel.is_open()) files.push_back(channel.file());
    }
    wait_for(files, {}, std::min(deadline_, Clock::now() + std::chrono::milliseconds(200)));
    while (true) {
      const int file = accept(listener_.file(), nullptr, nullptr);
      if (file < 0) break;
      guests_.push_back({Channel(Socket(file)), Clock::now() + kGreeting});
      guests_.back().channel.set_limit(kMostGreeting);
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
    if (!message) return;
    const auto words = message->kind == MessageKind::kHello ? unpack(message->text) : std::nullopt;
    if (!words || words->size() != 5) return guest.channel.close();
    const auto& [job, size, rank, host, process] =
        std::tie((*words)[0], (*words)[1], (*words)[2], (*words)[3], (*words)[4]);
    if (job != environment_.job) {
      guest.channel.send({MessageKind::kRefuse, "another job"});
      return guest.channel.close();
    }
    const int number = std::atoi(rank.c_str());
    const std::string who = fmt::format("rank {} ({}, process {})", rank, host, process);
    if (size != std::to_string(environment_.size)) {
      fail(fmt::format("[comm] {} says that there are {} ranks, rank 0 that there are {}", who, size,
                       environment_.size),
           &guest.channel);
    }
    if (number < 1 || number >= environment_.size ||
        meeting_.members[static_cast<size_t>(number)].process != 0) {
      const bool is_known = number >= 0 && number < environment_.size;
      fail(fmt::format("[comm] {} came{}", who,
                       is_known ? " though there is already " + describe(meeting_.members, number)
                                : fmt::format(", which a job of {} does not have", environment_.size)),
           &guest.channel);
    }
    guest.channel.send({MessageKind::kBeat, {}});
    guest.channel.set_limit(Channel::kMostBytes);
    meeting_.members[static_cast<size_t>(number)] = {host, std::max(std::atoi(process.c_str()), 1)};
    meeting_.channels[static_cast<size_t>(number)] = std::move(guest.channel);
    ++come_;
  }

  std::string missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < environment_.size; ++rank) {
      if (meeting_.members[static_cast<size_t>(rank)].process == 0) ranks.push_back(rank);
    }
    return fmt::format("[comm] of {} ranks these did not come within {} s: {}", environment_.size, timeout_,
                       listing(ranks));
  }

  void tell_all(const Message& message) {
    for (Channel& channel : meeting_.channels) {
      if (channel.is_open()) channel.send(message);
    }
  }

  [[noreturn]] void fail(const std::string& text, Channel* other = nullptr) {
    tell_all({MessageKind::kFatal, text});
    if (other != nullptr) other->send({MessageKind::kFatal, text});
    throw CommunicationError(text);
  }

  const ProcessEnvironment& environment_;
  double timeout_;
  Deadline deadline_;
  Socket listener_;
  std::vector<Guest> guests_;
  Meeting meeting_;
  int come_ = 1;
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

/// A channel to rank 0 that has taken this rank in; nothing if there is none, and why.
std::optional<Channel> find_host(const ProcessEnvironment& environment, Deadline deadline,
                                 std::string& reason) {
  const Message hello{MessageKind::kHello,
                      pack({environment.job, std::to_string(environment.size),
                            std::to_string(environment.rank), host_name(), std::to_string(getpid())})};
  for (int i = 0; i < environment.ports; ++i) {
    const Deadline until = std::min(deadline, Clock::now() + kGreeting);
    std::optional<Socket> socket = connect_to(environment.address, environment.port + i, until, reason);
    if (!socket) continue;
    Channel channel(std::move(*socket));
    channel.send(hello);
    const std::optional<Message> answer = next_message(channel, until);
    if (answer && answer->kind == MessageKind::kBeat) return channel;
    if (answer && answer->kind == MessageKind::kFatal) throw CommunicationError(answer->text);
    reason = answer && answer->kind == MessageKind::kRefuse ? "another job listens there"
                                                            : "what listens there is no rank 0 of this job";
  }
  return std::nullopt;
}

Meeting join(const ProcessEnvironment& environment, double timeout) {
  const Deadline deadline = after(timeout);
  std::string reason = "no answer";
  std::optional<Channel> channel;
  while (!(channel = find_host(environment, deadline, reason))) {
    if (Clock::now() >= deadline) {
      throw_error<CommunicationError>("[comm] rank {} did not reach rank 0 at {}:{} within {} s: {}",
                                      environment.rank, environment.address, environment.port, timeout,
                                      reason);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  // Rank 0 tells who is missing when its time is over, a little later than this one's.
  const std::optional<Message> answer = next_message(*channel, deadline + kGreeting);
  if (answer && answer->kind == MessageKind::kFatal) throw CommunicationError(answer->text);
  const auto words = answer && answer->kind == MessageKind::kWelcome ? unpack(answer->text) : std::nullopt;
  if (!words || words->size() != 2 * static_cast<size_t>(environment.size))
    throw_error<CommunicationError>("[comm] rank 0 at {}:{} went away before all {} ranks had come",
                                    environment.address, environment.port, environment.size);
  Meeting meeting{.rank = environment.rank, .members = {}, .channels = {}};
  for (size_t i = 0; i < words->size(); i += 2)
    meeting.members.push_back({(*words)[i], std::atoi((*words)[i + 1].c_str())});
  meeting.channels.push_back(std::move(*channel));
  return meeting;
}

}  // namespace

std::string describe(const std::vector<Member>& members, int rank) {
  const Member& member = members.at(static_cast<size_t>(rank));
  return fmt::format("rank {} ({}, process {})", rank, member.host, member.process);
}

Meeting meet(const ProcessEnvironment& environment, double timeout_seconds) {
  return environment.rank == 0 ? Host(environment, timeout_seconds).meet()
                               : join(environment, timeout_seconds);
}

std::vector<std::string> exchange(Meeting& meeting, const std::string& part, const char* what,
                                  double timeout_seconds) {
  const Deadline deadline = after(timeout_seconds);
  if (meeting.rank != 0) {
    Channel& channel = meeting.channels.front();
    channel.send({MessageKind::kPart, part});
    const std::optional<Message> answer = next_message(channel, deadline + kGreeting);
    if (answer && answer->kind == MessageKind::kFatal) throw CommunicationError(answer->text);
    const auto parts = answer && answer->kind == MessageKind::kAll ? unpack(answer->text) : std::nullopt;
    if (!parts || parts->size() != meeting.members.size())
      throw_error<CommunicationError>("[comm] {} did not answer in the exchange of {}",
                                      describe(meeting.members, 0), what);
    return *parts;
  }
  std::vector<std::string> parts(meeting.members.size());
  parts[0] = part;
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    const std::optional<Message> message = next_message(meeting.channels[rank], deadline);
    if (!message || message->kind != MessageKind::kPart) {
      const std::string text = fmt::format("[comm] {} is lost in the exchange of {}",
                                           describe(meeting.members, static_cast<int>(rank)), what);
      for (Channel& channel : meeting.channels) {
        if (channel.is_open()) channel.send({MessageKind::kFatal, text});
      }
      throw CommunicationError(text);
    }
    parts[rank] = message->text;
  }
  const Message all{MessageKind::kAll, pack(parts)};
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    Channel& channel = meeting.channels[rank];
    channel.send(all);
    while (channel.is_open() && channel.has_unsent() && Clock::now() < deadline) {
      wait_for({channel.file()}, {true}, deadline);
      channel.flush();
    }
  }
  return parts;
}

}  // namespace sinter::comm
