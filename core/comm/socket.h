// TCP connections with deadlines, and messages on them. Internal to core/comm.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sinter::comm {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

/// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int file) : file_(file) {}
  Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int file() const { return file_; }
  bool is_open() const { return file_ >= 0; }
  void close();

 private:
  int file_ = -1;
};

enum class MessageKind : uint32_t {
  kHello = 1,  ///< a rank's first words
  kWelcome,    ///< everybody has come
  kRefuse,     ///< of another job: the caller looks elsewhere
  kFatal,      ///< the job cannot begin
  kPart,       ///< one rank's part of an exchange
  kAll,        ///< all parts
  kBeat,       ///< alive, and at which operation
  kLost,       ///< a rank is lost, or failed; ends the job
  kBye,        ///< leaves in order
};

struct Message {
  MessageKind kind = MessageKind::kHello;
  std::string text = {};
};

/// Messages over one connection, which never blocks: what has come is taken in pieces. Whatever is no
/// message of ours breaks the connection.
class Channel {
 public:
  /// Longest message that is taken.
  static constexpr uint32_t kMostBytes = 64u << 20;

  Channel() = default;
  explicit Channel(Socket socket);

  int file() const { return socket_.file(); }
  bool is_open() const { return socket_.is_open(); }
  void close() { socket_.close(); }

  /// Queues a message, and sends as much as the connection takes now.
  void send(const Message& message);
  bool has_unsent() const { return !unsent_.empty(); }
  /// Sends more of what is queued.
  void flush();
  /// Reads what is there. Closes the connection at its end, at an error, and at what is no message.
  void receive();
  /// The next message that has come whole.
  std::optional<Message> take();
  /// Longest message that is taken from now on: a stranger's first words are short.
  void set_limit(uint32_t bytes) { limit_ = bytes; }

 private:
  Socket socket_;
  std::string unsent_;
  std::string received_;
  uint32_t limit_ = kMostBytes;
};

/// Listens on `port` of all addresses of this machine. Throws CommunicationError if that cannot be; gives
/// nothing if the port is in use.
std::optional<Socket> listen_on(int port);
/// Tries once to connect within the time; gives nothing, and the reason, if nobody answers.
std::optional<Socket> connect_to(const std::string& address, int port, Deadline deadline,
                                 std::string& reason);
/// Waits until one of the files can be read (or, where `writes` says so, written), at most until then. Gives
/// which can.
std::vector<bool> wait_for(const std::vector<int>& files, const std::vector<bool>& writes, Deadline deadline);

/// Text of several strings, and back; nothing if it is damaged.
std::string pack(const std::vector<std::string>& parts);
std::optional<std::vector<std::string>> unpack(const std::string& text);

}  // namespace sinter::comm
