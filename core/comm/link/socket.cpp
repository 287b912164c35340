#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sinter/core/base/error.h>
#include <sinter/core/comm/link/socket.h>

namespace sinter::comm {
namespace {

constexpr uint32_t kMagic = 0x53'4E'54'31;  // "SNT1"
constexpr size_t kPiece = 1 << 16;

struct Header {
  uint32_t magic = kMagic;
  uint32_t kind = 0;
  uint32_t bytes = 0;
};

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

void prepare(int file) {
  fcntl(file, F_SETFL, fcntl(file, F_GETFL) | O_NONBLOCK);
  fcntl(file, F_SETFD, FD_CLOEXEC);
  const int on = 1;
  setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    file_ = std::exchange(other.file_, -1);
  }
  return *this;
}

Socket::~Socket() {
  close();
}

void Socket::close() {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

Channel::Channel(Socket socket) : socket_(std::move(socket)) {
  prepare(socket_.file());
}

void Channel::send(const Message& message) {
  const Header header{kMagic, static_cast<uint32_t>(message.kind),
                      static_cast<uint32_t>(message.text.size())};
  unsent_.append(reinterpret_cast<const char*>(&header), sizeof header);
  unsent_ += message.text;
  flush();
}

void Channel::flush() {
  while (is_open() && has_unsent() && !takes_nothing_) {
    const ssize_t sent = ::send(file(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0) {
      // The other's last words may still be there to be read: receive() finds the end behind them.
      if (!would_block()) takes_nothing_ = true;
      break;
    }
    sent_ += static_cast<size_t>(sent);
  }
  if (takes_nothing_) sent_ = unsent_.size();
  if (has_unsent() && sent_ < kPiece) return;
  unsent_.erase(0, sent_);
  sent_ = 0;
}

bool Channel::is_damaged() const {
  Header header;
  if (received_.size() < sizeof header) return false;
  std::memcpy(&header, received_.data(), sizeof header);
  return header.magic != kMagic || header.bytes > limit_;
}

bool Channel::receive() {
  char piece[kPiece];
  bool any = false;
  while (is_open() && received_.size() < sizeof(Header) + limit_) {
    const size_t room = sizeof(Header) + limit_ - received_.size();
    const ssize_t got = ::recv(file(), piece, std::min(room, sizeof piece), 0);
    if (got < 0 && would_block()) return any;
    if (got <= 0) {
      close();
      return any;
    }
    any = true;
    received_.append(piece, static_cast<size_t>(got));
    if (is_damaged()) {
      received_.clear();
      close();
    }
  }
  return any;
}

std::optional<Message> Channel::take() {
  if (is_damaged()) {  // what came behind a message
    received_.clear();
    close();
  }
  Header header;
  if (received_.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, received_.data(), sizeof header);
  if (received_.size() < sizeof header + header.bytes) return std::nullopt;
  Message message{static_cast<MessageKind>(header.kind), received_.substr(sizeof header, header.bytes)};
  received_.erase(0, sizeof header + header.bytes);
  return message;
}

std::vector<Socket> listen_at(const std::vector<Address>& places, std::string& reason) {
  std::vector<Socket> listeners;
  for (const Address& place : places) {
    Socket socket(::socket(place.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) {
      reason = std::strerror(errno);  // as of IPv6 where there is none
      continue;
    }
    const int on = 1;
    setsockopt(socket.file(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (place.family() == AF_INET6) setsockopt(socket.file(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(socket.file(), place.raw(), place.length) == 0 && listen(socket.file(), 1024) == 0) {
      listeners.push_back(std::move(socket));
      continue;
    }
    reason = std::strerror(errno);
    if (errno == EADDRINUSE) return {};
  }
  return listeners;
}

std::optional<Socket> accept_from(const Socket& listener) {
  Socket socket(accept4(listener.file(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  return socket.is_open() ? std::optional(std::move(socket)) : std::nullopt;
}

std::optional<Socket> connect_to(const std::string& host, int port, Deadline deadline, std::string& reason) {
  for (const Address& each : resolve(host, port, reason)) {
    Socket socket(::socket(each.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) continue;
    if (connect(socket.file(), each.raw(), each.length) != 0 && errno != EINPROGRESS) {
      reason = std::strerror(errno);
      continue;
    }
    pollfd waiting{socket.file(), POLLOUT, 0};
    if (poll(&waiting, 1, milliseconds_until(deadline)) <= 0) {
      reason = "no answer";
      continue;
    }
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(socket.file(), SOL_SOCKET, SO_ERROR, &error, &length);
    // A port that nobody listens at may be given to the connection itself, which then is one to itself.
    const auto near = near_end(socket.file()), far = far_end(socket.file());
    const bool is_own = near && far && near->port() == far->port() && near->text() == far->text();
    if (error == 0 && !is_own) return socket;
    reason = std::strerror(is_own ? ECONNREFUSED : error);
  }
  return std::nullopt;
}

std::vector<bool> wait_for(const std::vector<int>& files, const std::vector<bool>& writes,
                           Deadline deadline) {
  std::vector<pollfd> polled;
  for (size_t i = 0; i < files.size(); ++i) {
    const bool write = i < writes.size() && writes[i];
    polled.push_back({files[i], static_cast<short>(write ? POLLIN | POLLOUT : POLLIN), 0});
  }
  const int ready = poll(polled.data(), polled.size(), milliseconds_until(deadline));
  std::vector<bool> result(files.size());
  for (size_t i = 0; ready > 0 && i < files.size(); ++i) result[i] = polled[i].revents != 0;
  return result;
}

Deadline after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e6)));
}

std::string pack(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    const auto bytes = static_cast<uint32_t>(part.size());
    text.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    text += part;
  }
  return text;
}

std::optional<std::vector<std::string>> unpack(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    uint32_t bytes = 0;
    if (text.size() - at < sizeof bytes) return std::nullopt;
    std::memcpy(&bytes, text.data() + at, sizeof bytes);
    at += sizeof bytes;
    if (text.size() - at < bytes) return std::nullopt;
    parts.push_back(text.substr(at, bytes));
    at += bytes;
  }
  return parts;
}

std::optional<int64_t> to_number(const std::string& text, int64_t least, int64_t most) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most) return std::nullopt;
  return value;
}

std::string printable(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // The second byte of U+0080 to U+009F, which are controls too.
    const bool is_late = i > 0 && text[i - 1] == '\xc2' && c >= 0x80 && c < 0xa0;
    if (c < 0x20 || c == 0x7f || is_late) text[i] = '?';
  }
  return text;
}

}  // namespace sinter::comm
