// Collectives on CPU tensors, through Gloo over TCP.
#include <sinter/core/comm/collective_backend.h>

#ifdef SINTER_WITH_GLOO

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include <arpa/inet.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <sinter/core/base/float16.h>
#include <sinter/core/comm/gloo/gloo_waits.h>

namespace sinter::comm {
namespace {

/// Hands out the addresses at which the ranks of a meeting listen: Gloo asks for them by rank.
class MeetingStore final : public gloo::rendezvous::Store {
 public:
  MeetingStore(Meeting& meeting, double timeout) : meeting_(meeting), timeout_(timeout) {}

  void set(const std::string& /*key*/, const std::vector<char>& data) override {
    addresses_ =
        exchange(meeting_, std::string(data.begin(), data.end()), "the addresses for Gloo", timeout_);
  }
  std::vector<char> get(const std::string& key) override {
    const std::string& text = addresses_.at(static_cast<size_t>(std::atoi(key.c_str())));
    return {text.begin(), text.end()};
  }
  void wait(const std::vector<std::string>& /*keys*/) override {}
  void wait(const std::vector<std::string>& /*keys*/, const std::chrono::milliseconds&) override {}

 private:
  Meeting& meeting_;
  double timeout_;
  std::vector<std::string> addresses_;
};

/// Gloo writes to connections that may be broken, for which the system would end the process. While this
/// lives, the calling thread gets an error instead, and so do threads that begin meanwhile for ever.
class WithoutPipeSignal {
 public:
  WithoutPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutPipeSignal() {
    const timespec now{};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &now);  // takes one that came meanwhile
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutPipeSignal(const WithoutPipeSignal&) = delete;
  WithoutPipeSignal& operator=(const WithoutPipeSignal&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

/// The connected sockets of this process: file and inode.
std::set<std::pair<int, uint64_t>> connected_sockets() {
  std::set<std::pair<int, uint64_t>> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int file = std::atoi(entry.path().filename().c_str());
    struct stat status {};
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (fstat(file, &status) == 0 && S_ISSOCK(status.st_mode) &&
        getpeername(file, reinterpret_cast<sockaddr*>(&peer), &length) == 0 && peer.ss_family != AF_UNIX)
      found.emplace(file, status.st_ino);
  }
  return found;
}

/// This machine's address on the way to rank 0, or to another machine; empty if all are here.
std::string own_address(const Meeting& meeting) {
  const std::string& host = meeting.members.front().host;
  bool together = true;
  for (const Member& member : meeting.members) together = together && member.host == host;
  if (together) return "127.0.0.1";
  for (const Channel& channel : meeting.channels) {
    sockaddr_in place{};
    socklen_t length = sizeof place;
    if (!channel.is_open() || getsockname(channel.file(), reinterpret_cast<sockaddr*>(&place), &length) != 0)
      continue;
    if (ntohl(place.sin_addr.s_addr) >> 24 == 127) continue;
    char text[INET_ADDRSTRLEN] = {};
    return inet_ntop(AF_INET, &place.sin_addr, text, sizeof text);
  }
  return meeting.members[static_cast<size_t>(meeting.rank)].host;
}

template <class T>
void add(void* sum, const void* a, const void* b, size_t count) {
  auto* const to = static_cast<T*>(sum);
  const auto *const x = static_cast<const T*>(a), *const y = static_cast<const T*>(b);
  for (size_t i = 0; i < count; ++i) {
    if constexpr (sizeof(T) == 2) {
      to[i] = static_cast<T>(static_cast<float>(x[i]) + static_cast<float>(y[i]));
    } else {
      to[i] = x[i] + y[i];
    }
  }
}

class GlooBackend final : public CollectiveBackend {
 public:
  GlooBackend(Meeting& meeting, const CommunicatorOptions& options)
      : timeout_(static_cast<int64_t>(options.timeout * 1000)) {
    translate([&] {
      gloo::transport::tcp::attr attributes;
      if (const char* const name = std::getenv("SINTER_INTERFACE"); name != nullptr && *name != '\0') {
        attributes.iface = name;
      } else {
        attributes.hostname = own_address(meeting);
      }
      auto device = gloo::transport::tcp::CreateDevice(attributes);
      const auto before = connected_sockets();
      MeetingStore store(meeting, options.join_timeout);
      auto context = std::make_shared<WakeableMesh>(meeting.rank, static_cast<int>(meeting.members.size()));
      context->setTimeout(std::chrono::milliseconds(timeout_));
      context->connectFullMesh(store, device);
      context->wake_with(waits_);
      context_ = std::move(context);
      for (const auto& socket : connected_sockets()) {
        if (!before.contains(socket)) sockets_.insert(socket);
      }
    });
  }

  void all_reduce(void* data, int64_t count, DType dtype, const Stream& /*stream*/) override {
    switch (dtype) {
      case DType::kFloat32:
        return reduce<float>(data, count);
      case DType::kFloat64:
        return reduce<double>(data, count);
      case DType::kFloat16:
        return reduce<float16>(data, count);
      case DType::kBFloat16:
        return reduce<bfloat16>(data, count);
      case DType::kInt32:
        return reduce<int32_t>(data, count);
      case DType::kInt64:
        return reduce<int64_t>(data, count);
      default:
        throw_error<InvalidArgument>("[comm] there are no sums of {}", dtype);
    }
  }

  // All is summed and a part kept: Gloo's own reduce-scatter knows only pairs of buffers.
  void reduce_scatter(const void* from, void* to, int64_t count, DType dtype, const Stream& stream) override {
    const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
    std::vector<std::byte> all(bytes * static_cast<size_t>(context_->size));
    std::memcpy(all.data(), from, all.size());
    all_reduce(all.data(), count * context_->size, dtype, stream);
    std::memcpy(to, all.data() + bytes * static_cast<size_t>(context_->rank), bytes);
  }

  void all_gather(const void* from, void* to, size_t bytes, const Stream& /*stream*/) override {
    translate([&] {
      gloo::AllgatherOptions options(context_);
      options.setInput(const_cast<char*>(static_cast<const char*>(from)), bytes);
      options.setOutput(static_cast<char*>(to), bytes * static_cast<size_t>(context_->size));
      gloo::allgather(options);
    });
  }

  void broadcast(void* data, size_t bytes, int root, const Stream& /*stream*/) override {
    translate([&] {
      gloo::BroadcastOptions options(context_);
      options.setOutput(static_cast<char*>(data), bytes);
      options.setRoot(root);
      gloo::broadcast(options);
    });
  }

  void barrier() override {
    translate([&] {
      gloo::BarrierOptions options(context_);
      gloo::barrier(options);
    });
  }

  void begin_all_reduce(const Communicator::Bucket& bucket, const Stream& stream) override {
    const size_t size = size_of(bucket.dtype);
    auto* const sums = static_cast<std::byte*>(bucket.sums);
    size_t end = 0;
    for (const Communicator::Part& part : bucket.parts) {
      const size_t begin = static_cast<size_t>(part.place) * size;
      std::memset(sums + end, 0, begin - end);
      end = begin + static_cast<size_t>(part.count) * size;
      std::memcpy(sums + begin, part.from, end - begin);
    }
    std::memset(sums + end, 0, static_cast<size_t>(bucket.count) * size - end);
    all_reduce(sums, bucket.count, bucket.dtype, stream);
  }
  void end_all_reduce(const void* /*sums*/, const Stream& /*stream*/) override {}

  void abort(const std::string& text) noexcept override {
    // Gloo has no word for this. Where a connection ends, others learn of it.
    for (const auto& [file, inode] : sockets_) {
      struct stat status {};
      if (fstat(file, &status) == 0 && status.st_ino == inode) shutdown(file, SHUT_RDWR);
    }
    try {
      waits_->fail(text);
    } catch (const std::exception&) {  // no memory for the error: waits end when their time is over
    }
  }

 private:
  template <class T>
  void reduce(void* data, int64_t count) {
    translate([&] {
      gloo::AllreduceOptions options(context_);
      options.setOutput(static_cast<T*>(data), static_cast<size_t>(count));
      options.setReduceFunction(add<T>);
      gloo::allreduce(options);
    });
  }

  template <class F>
  static void translate(const F& f) {
    const WithoutPipeSignal quiet;
    try {
      f();
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      throw CommunicationError(error.what());
    }
  }

  int64_t timeout_;  // in milliseconds
  std::shared_ptr<GlooWaits> waits_ = std::make_shared<GlooWaits>();
  std::shared_ptr<gloo::Context> context_;
  std::set<std::pair<int, uint64_t>> sockets_;  // of the context
};

}  // namespace

std::unique_ptr<CollectiveBackend> make_gloo_backend(Meeting& meeting, const CommunicatorOptions& options) {
  return std::make_unique<GlooBackend>(meeting, options);
}

}  // namespace sinter::comm

#else

namespace sinter::comm {

std::unique_ptr<CollectiveBackend> make_gloo_backend(Meeting& meeting, const CommunicatorOptions&) {
  throw_error<Unsupported>(
      "[comm] this build was made without Gloo, so that {} processes cannot work together; build it with "
      "libgloo-dev",
      meeting.members.size());
}

}  // namespace sinter::comm

#endif
