#ifdef SINTER_WITH_GLOO

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <vector>

#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <sinter/core/base/log.h>
#include <sinter/core/comm/host/gloo_mesh.h>
#include <sinter/core/comm/link/hmac.h>

namespace sinter::comm {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kGreetingSlot = 7;  // Gloo's own begin far above
constexpr size_t kToken = 16;
constexpr double kQuick = 0.8;    // of the time: what fails earlier was refused or disturbed
constexpr int kMostAttempts = 3;  // a stranger may come to the ports of one rank after the other
constexpr int kMostNamed = 4;     // ranks that failed
constexpr double kMargin = 10.0;  // seconds that ranks may differ by

/// The sockets of this process that `takes` takes.
template <class F>
Sockets own_sockets(const F& takes) {
  Sockets found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int file = std::atoi(entry.path().filename().c_str());
    struct stat status {};
    if (fstat(file, &status) == 0 && S_ISSOCK(status.st_mode) && takes(file))
      found.emplace(file, status.st_ino);
  }
  return found;
}

Sockets without(const Sockets& sockets, const Sockets& others) {
  Sockets left;
  std::set_difference(sockets.begin(), sockets.end(), others.begin(), others.end(),
                      std::inserter(left, left.end()));
  return left;
}

using gloo::transport::tcp::Device;
using Attributes = gloo::transport::tcp::attr;

void set_port(Attributes& attributes, int port) {
  const uint16_t number = htons(static_cast<uint16_t>(port));
  if (attributes.ai_addr.ss_family == AF_INET)
    reinterpret_cast<sockaddr_in*>(&attributes.ai_addr)->sin_port = number;
  else
    reinterpret_cast<sockaddr_in6*>(&attributes.ai_addr)->sin6_port = number;
}

/// A device whose connections listen at ports that are chosen for them.
#if __has_include(<gloo/transport/tcp/listener.h>)  // Gloo from 2023 on: one listener for all connections
constexpr bool kHasListener = true;

/// Private members, which explicit instantiations may name: reveal(ListenerOf()) is where a device has its
/// listener.
template <class Name, typename Name::Place place>
struct Reveal {
  friend typename Name::Place reveal(Name /*name*/) { return place; }
};
struct LoopOf {
  using Place = std::shared_ptr<gloo::transport::tcp::Loop> Device::*;
  friend Place reveal(LoopOf name);
};
struct ListenerOf {
  using Place = std::shared_ptr<gloo::transport::tcp::Listener> Device::*;
  friend Place reveal(ListenerOf name);
};
template struct Reveal<LoopOf, &Device::loop_>;
template struct Reveal<ListenerOf, &Device::listener_>;

class PortDevice final : public Device {
 public:
  using Device::Device;

  // A device can be made for any port only: Gloo looks for a network interface with its address, port
  // included.
  void listen_at(int port) {
    Attributes attributes = attr_;
    set_port(attributes, port);
    this->*reveal(ListenerOf()) =
        std::make_shared<gloo::transport::tcp::Listener>(this->*reveal(LoopOf()), attributes);
  }
};
#else  // each pair has a listener of its own, for which Gloo reads the port from attr_
constexpr bool kHasListener = false;

class PortDevice final : public Device {
 public:
  using Device::Device;

  void listen_at(int port) {
    Attributes changed = attr_;
    set_port(changed, port);
    // As attr_ is const, only another object may take its place.
    auto* const place = const_cast<Attributes*>(&attr_);
    std::destroy_at(place);
    std::construct_at(place, changed);
  }
};
#endif

bool is_listening(int file) {
  int listens = 0;
  socklen_t length = sizeof listens;
  return getsockopt(file, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0;
}

/// Calls f with one port of the range after the other until it does not throw. Gives the next one.
template <class F>
int try_ports(int first, const ProcessEnvironment& environment, const F& f) {
  std::string reason = "all are given";
  for (int port = first; port <= environment.last_port; ++port) {
    try {
      f(port);
      return port + 1;
    } catch (const std::exception& error) {
      reason = words_of(error);
    }
  }
  throw_error<CommunicationError>("no port of SINTER_PORTS={}-{} is left: {}", environment.first_port,
                                  environment.last_port, reason);
}

class Connector {
 public:
  Connector(RankWatch& ranks, const ProcessEnvironment& environment, const CommunicatorOptions& options)
      : ranks_(ranks), environment_(environment), options_(options) {}

  GlooConnections connect() {
    find_address();
    const Sockets before = own_sockets([](int) { return true; });
    const auto is_connected = [](int file) { return far_end(file).has_value(); };
    // A common listener that is shut down would end the process; who waits there is freed by its pair's end.
    const auto is_ended = [](int file) {
      return near_end(file).has_value() && !(kHasListener && is_listening(file));
    };
    const auto end_all = [this, before, is_ended](const std::string&) {
      shut_down(without(own_sockets(is_ended), before));
      if (kHasListener) close_pairs();
    };
    ranks_.on_lost(end_all);
    const std::unique_ptr<RankWatch, void (*)(RankWatch*)> end(&ranks_,
                                                               [](RankWatch* ranks) { ranks->on_lost({}); });
    for (int attempt = 1; !try_once(); ++attempt) {
      if (const auto lost = ranks_.failure()) throw CommunicationError(*lost);
      if (!again_ || attempt == kMostAttempts) throw CommunicationError(failures_);
      log::warning("{}; once more", failures_);
    }
    return {std::move(mesh_), without(own_sockets(is_connected), before)};
  }

 private:
  /// Where others reach this rank: by its interface if one is given, else as it has reached rank 0; on rank
  /// 0's machine as other machines reach that one.
  void find_address() {
    const std::string& name = environment_.interface;
    std::string own = ranks_.address().text();
    if (!name.empty()) own = addresses_of_interface(name).front().text();
    const bool is_here = ranks_.address().is_loopback();
    const auto parts =
        ranks_.exchange(pack({is_here ? "here" : "far", own}), "addresses", options_.connect_timeout);
    bool several_machines = false;
    for (const std::string& part : parts)
      several_machines |= unpack(part).value_or(std::vector<std::string>{"", ""})[0] == "far";
    const auto of_zero = unpack(parts[0]);
    address_ = own;
    if (name.empty() && is_here && several_machines && of_zero) address_ = of_zero->back();
    std::string ignored;
    const auto places = resolve(address_, 0, ignored);
    if (several_machines && !places.empty() && places.front().is_loopback()) {
      throw_error<InvalidArgument>(
          "[comm] {}{} is an address that no other machine reaches, but ranks are on several",
          name.empty() ? "" : "SINTER_INTERFACE=" + name + ": ", address_);
    }
  }

  /// Makes all connections. Where any rank fails, all say so.
  bool try_once() {
    const Deadline start = Clock::now();
    mesh_ = nullptr;
    std::string failure;
    bool is_quick = false;
    try {
      make_pairs();
      greet(connect_pairs());
    } catch (const std::exception& error) {
      if (const auto lost = ranks_.failure()) throw CommunicationError(*lost);
      failure = words_of(error);
      is_quick =
          std::chrono::duration<double>(Clock::now() - start).count() < kQuick * options_.connect_timeout;
    }
    const std::string part = failure.empty() ? "" : pack({failure, is_quick ? "quick" : ""});
    const auto parts = ranks_.exchange(part, "connections", 2 * options_.connect_timeout + kMargin);
    failures_.clear();
    again_ = false;
    int failed = 0;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const auto words = unpack(parts[static_cast<size_t>(rank)]);
      if (!words || words->size() != 2) continue;
      again_ |= (*words)[1] == "quick";
      if (++failed > kMostNamed) continue;
      failures_ += fmt::format("{}{} {}", failures_.empty() ? "[comm] the ranks cannot be connected: " : "; ",
                               describe(ranks_.members(), rank), printable((*words)[0]));
    }
    if (failed > kMostNamed) failures_ += fmt::format("; and {} more", failed - kMostNamed);
    return failed == 0;
  }

  void make_pairs() {
    Attributes attributes;
    attributes.hostname = address_;
    attributes = gloo::transport::tcp::CreateDeviceAttr(attributes);
    const auto device = std::make_shared<PortDevice>(attributes);
    const bool in_range = environment_.first_port > 0;
    int port = environment_.first_port;
    if (in_range && kHasListener) try_ports(port, environment_, [&](int each) { device->listen_at(each); });
    transport_ = device->createContext(ranks_.rank(), ranks_.size());
    transport_->setTimeout(milliseconds(
        static_cast<int64_t>(options_.connect_timeout * 1000 / 5)));  // Gloo waits 5 times as long
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      if (rank == ranks_.rank()) continue;
      if (in_range && !kHasListener) {
        port = try_ports(port, environment_, [&](int each) {
          device->listen_at(each);
          transport_->createPair(rank);
        });
      } else {
        transport_->createPair(rank);
      }
    }
    device_ = device;
    const std::lock_guard lock(pairs_mutex_);
    made_ = transport_;
  }

  /// Ends what waits for the other end of a pair. By another thread than the one that connects.
  void close_pairs() {
    const std::lock_guard lock(pairs_mutex_);
    for (int rank = 0; made_ != nullptr && rank < ranks_.size(); ++rank) {
      if (rank != ranks_.rank()) made_->getPair(rank)->close();
    }
  }

  /// Gives the token that the ranks then greet each other with.
  std::string connect_pairs() {
    std::vector<std::string> own = {ranks_.rank() == 0 ? random_bytes(kToken) : ""};
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const std::vector<char> bytes =
          rank == ranks_.rank() ? std::vector<char>() : transport_->getPair(rank)->address().bytes();
      own.emplace_back(bytes.begin(), bytes.end());
    }
    const auto parts = ranks_.exchange(pack(own), "the addresses for Gloo", options_.connect_timeout);
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      if (rank == ranks_.rank()) continue;
      const auto addresses = unpack(parts[static_cast<size_t>(rank)]);
      const std::string& mine = own[static_cast<size_t>(rank) + 1];
      if (!addresses || addresses->size() != own.size() ||
          (*addresses)[static_cast<size_t>(ranks_.rank()) + 1].size() != mine.size())
        throw_error<CommunicationError>("gets no address for Gloo from {}", describe(ranks_.members(), rank));
      const std::string& text = (*addresses)[static_cast<size_t>(ranks_.rank()) + 1];
      connect_pair(rank, {text.begin(), text.end()});
    }
    return unpack(parts[0])->front();
  }

  void connect_pair(int rank, const std::vector<char>& bytes) {
    const sockaddr_storage place = gloo::transport::tcp::Address(bytes).getSockaddr();
    const size_t length = place.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const Address address{.place = place, .length = static_cast<socklen_t>(length)};
    if (address.family() != AF_INET && address.family() != AF_INET6)
      throw_error<CommunicationError>("gets no address for Gloo from {}", describe(ranks_.members(), rank));
    try {
      transport_->getPair(rank)->connect(bytes);
    } catch (const std::exception& error) {
      throw_error<CommunicationError>(
          "has no connection to {} at {} ({}; a firewall may be between them, to which "
          "SINTER_PORTS names ports)",
          describe(ranks_.members(), rank), endpoint(address.text(), address.port()), words_of(error));
    }
  }

  /// Whoever connected first has the place: makes sure that it is the rank.
  void greet(const std::string& token) {
    const auto size = static_cast<size_t>(ranks_.size());
    std::vector<std::string> words(size, token + std::to_string(ranks_.rank())), heard(size);
    std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> buffers;
    const auto each_other = [&](const auto& f) {
      for (int rank = 0; rank < ranks_.size(); ++rank) {
        if (rank != ranks_.rank())
          f(rank, words[static_cast<size_t>(rank)], heard[static_cast<size_t>(rank)]);
      }
    };
    each_other([&](int rank, std::string& said, std::string& answer) {
      answer.resize(token.size() + std::to_string(rank).size());
      buffers.push_back(transport_->createUnboundBuffer(said.data(), said.size()));
      buffers.back()->send(rank, kGreetingSlot);
      buffers.push_back(transport_->createUnboundBuffer(answer.data(), answer.size()));
      buffers.back()->recv(rank, kGreetingSlot);
    });
    const milliseconds time(static_cast<int64_t>(options_.connect_timeout * 1000));
    size_t next = 0;
    each_other([&](int rank, const std::string&, const std::string& answer) {
      std::string why = "it says something else";
      try {
        buffers[next]->waitSend(time);
        buffers[next + 1]->waitRecv(nullptr, time);
      } catch (const std::exception& error) {
        why = words_of(error);
      }
      next += 2;
      if (answer == token + std::to_string(rank)) return;
      throw_error<CommunicationError>("was connected by somebody who is not {} ({})",
                                      describe(ranks_.members(), rank), why);
    });
    mesh_ = std::make_shared<WakeableMesh>(ranks_.rank(), ranks_.size());
    mesh_->adopt(device_, transport_);
  }

  RankWatch& ranks_;
  const ProcessEnvironment& environment_;
  const CommunicatorOptions& options_;
  std::string address_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> transport_;
  std::shared_ptr<WakeableMesh> mesh_;
  std::string failures_;  // of the last attempt
  bool again_ = false;
  std::mutex pairs_mutex_;                          // guards what follows
  std::shared_ptr<gloo::transport::Context> made_;  // transport_ when all its pairs are there
};

}  // namespace

GlooConnections connect_gloo(RankWatch& ranks, const ProcessEnvironment& environment,
                             const CommunicatorOptions& options) {
  return Connector(ranks, environment, options).connect();
}

void shut_down(const Sockets& sockets) noexcept {
  for (const auto& [file, inode] : sockets) {
    struct stat status {};
    if (fstat(file, &status) == 0 && status.st_ino == inode) shutdown(file, SHUT_RDWR);
  }
}

// "[/src/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.2]:4321", or
// "[enforce fail at ./gloo/transport/tcp/socket.cc:95] rv != -1. -1 vs -1. bind: Address already in use"
std::string words_of(const std::exception& error) {
  const std::string text = error.what();
  const size_t end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  if (end == std::string::npos || text.substr(0, end).find(".") == std::string::npos ||
      text.find("gloo") > end)
    return text;
  const size_t condition = text.starts_with("[enforce") ? text.rfind(". ") : std::string::npos;
  return text.substr((condition != std::string::npos && condition > end ? condition : end) + 2);
}

}  // namespace sinter::comm

#endif
