#include <cerrno>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sinter/core/comm/communication_error.h>
#include <sinter/core/comm/socket.h>

namespace sinter::comm {
namespace {

constexpr uint32_t kMagic = 0x53'4E'54'31;  // "SNT1"

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
  while (is_open() && !unsent_.empty()) {
    const ssize_t sent = ::send(file(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      if (would_block()) return;
      close();
      return;
    }
    unsent_.erase(0, static_cast<size_t>(sent));
  }
}

void Channel::receive() {
  std::string piece(1 << 16, '\0');
  while (is_open()) {
    const ssize_t got = ::recv(file(), piece.data(), piece.size(), 0);
    if (got < 0 && would_block()) return;
    if (got <= 0) {
      close();
      return;
    }
    received_.append(piece.data(), static_cast<size_t>(got));
    Header header;
    if (received_.size() < sizeof header) continue;
    std::memcpy(&header, received_.data(), sizeof header);
    if (header.magic != kMagic || header.bytes > limit_) {
      received_.clear();
      close();
    }
  }
}

std::optional<Message> Channel::take() {
  Header header;
  if (received_.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, received_.data(), sizeof header);
  if (header.magic != kMagic || header.bytes > limit_) {
    received_.clear();
    close();
    return std::nullopt;
  }
  if (received_.size() < sizeof header + header.bytes) return std::nullopt;
  Message message{static_cast<MessageKind>(header.kind), received_.substr(sizeof header, header.bytes)};
  received_.erase(0, sizeof header + header.bytes);
  return message;
}

std::optional<Socket> listen_on(int port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open())
    throw_error<CommunicationError>("[comm] no socket can be made: {}", std::strerror(errno));
  const int on = 1;
  setsockopt(socket.file(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<uint16_t>(port));
  place.sin_addr.s_addr = htonl(INADDR_ANY);
  if (bind(socket.file(), reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0 ||
      listen(socket.file(), 1024) != 0) {
    if (errno == EADDRINUSE) return std::nullopt;
    throw_error<CommunicationError>("[comm] port {} cannot be listened on: {}", port, std::strerror(errno));
  }
  fcntl(socket.file(), F_SETFL, O_NONBLOCK);
  return socket;
}

std::optional<Socket> connect_to(const std::string& address, int port, Deadline deadline,
                                 std::string& reason) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) {
    reason = gai_strerror(status);
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Socket socket(::socket(each->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) continue;
    if (connect(socket.file(), each->ai_addr, each->ai_addrlen) != 0 && errno != EINPROGRESS) {
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
    if (error == 0) return socket;
    reason = std::strerror(error);
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

}  // namespace sinter::comm
