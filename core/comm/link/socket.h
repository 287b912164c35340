// TCP connections with deadlines, and messages on them. Internal to core/comm.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/comm/link/address.h>

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
  kFatal,      ///< the caller, or the job, cannot begin
  kPart,       ///< data for the other's thread that computes
  kBits,       ///< what a rank asks for, and what all ask for
  kBeat = 7,   ///< alive, and at which operation
  kLost,       ///< a rank is lost, or failed; ends the job
  kBye,        ///< leaves in order
  kChallenge,  ///< rank 0 shows that it knows the job's key, and asks for the same
  kProof,      ///< the answer
  kTaken,      ///< the caller is one of the job
};

struct Message {
  MessageKind kind = MessageKind::kHello;
  std::string text = {};
};

/// Messages over one connection, which never blocks: what has come is taken in pieces. Whatever is no
/// message of ours breaks the connection. It holds at most one message of the greatest length that has come
/// and was not taken; the rest waits in the system.
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
  bool has_unsent() const { return sent_ < unsent_.size(); }
  /// Sends more of what is queued.
  void flush();
  /// Reads what is there, and says whether anything was. Closes the connection at its end, at an error, and
  /// at what is no message.
  bool receive();
  /// The next message that has come whole.
  std::optional<Message> take();
  /// Longest message that is taken from now on: a stranger's first words are short.
  void set_limit(uint32_t bytes) { limit_ = bytes; }

 private:
  bool is_damaged() const;

  Socket socket_;
  std::string unsent_;
  size_t sent_ = 0;             // bytes of it
  bool takes_nothing_ = false;  // the other end has gone
  std::string received_;
  uint32_t limit_ = kMostBytes;
};

/// Listens at all of these places that this machine has. Gives nothing, and the reason, if one of them is in
/// use or none can be listened at.
std::vector<Socket> listen_at(const std::vector<Address>& places, std::string& reason);
/// The connections that have come, and are not blocking.
std::optional<Socket> accept_from(const Socket& listener);
/// Tries once to connect within the time; gives nothing, and the reason, if nobody answers.
std::optional<Socket> connect_to(const std::string& host, int port, Deadline deadline, std::string& reason);
/// Waits until one of the files can be read (or, where `writes` says so, written), at most until then. Gives
/// which can.
std::vector<bool> wait_for(const std::vector<int>& files, const std::vector<bool>& writes, Deadline deadline);

/// A time so far from now.
Deadline after(double seconds);

/// Text of several strings, and back; nothing if it is damaged.
std::string pack(const std::vector<std::string>& parts);
std::optional<std::vector<std::string>> unpack(const std::string& text);
/// The number that a text is, digits and nothing else, if it lies there.
std::optional<int64_t> to_number(const std::string& text, int64_t least, int64_t most);
/// What other processes say, for a terminal and in one line: "?" for whatever controls one.
std::string printable(std::string text);

}  // namespace sinter::comm
