// Collectives on CPU tensors, through Gloo over TCP.
#include <sinter/core/comm/collective_backend.h>

#ifdef SINTER_WITH_GLOO

#include <csignal>
#include <utility>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>

#include <sinter/core/comm/host/gloo_mesh.h>
#include <sinter/core/comm/host/host_backend.h>

namespace sinter::comm {
namespace {

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

class GlooBackend final : public HostBackend {
 public:
  GlooBackend(RankWatch& ranks, const ProcessEnvironment& environment, const CommunicatorOptions& options)
      : HostBackend(ranks.rank(), ranks.size()) {
    translate([&] {
      GlooConnections made = connect_gloo(ranks, environment, options);
      // Without wakes an end of the wait is up to Gloo.
      const std::chrono::milliseconds timeout(static_cast<int64_t>(options.timeout * 1000));
      made.mesh->set_time(made.mesh->wake_with(waits_) ? kForEver : timeout);
      context_ = std::move(made.mesh);
      sockets_ = std::move(made.sockets);
    });
  }

  void all_reduce(void* data, int64_t count, DType dtype, const Stream& /*stream*/) override {
    with_summed_type(dtype, [&]<class T>() {
      translate([&] {
        gloo::AllreduceOptions options(context_);
        options.setOutput(static_cast<T*>(data), static_cast<size_t>(count));
        options.setReduceFunction(add<T>);
        gloo::allreduce(options);
      });
    });
  }

  void all_gather(const void* from, void* to, size_t bytes, const Stream& /*stream*/) override {
    translate([&] {
      gloo::AllgatherOptions options(context_);
      options.setInput(const_cast<char*>(static_cast<const char*>(from)), bytes);
      options.setOutput(static_cast<char*>(to), bytes * size_);
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

  void abort(const std::string& text) noexcept override {
    shut_down(sockets_);  // Gloo has no word for this. Where a connection ends, others learn of it.
    try {
      waits_->fail(text);
    } catch (const std::exception&) {  // no memory for the error: waits end when their time is over
    }
  }

 private:
  template <class F>
  void translate(const F& f) {
    const Work work(*this);
    const WithoutPipeSignal quiet;
    try {
      f();
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      throw CommunicationError(words_of(error));
    }
  }

  std::shared_ptr<GlooWaits> waits_ = std::make_shared<GlooWaits>();
  std::shared_ptr<gloo::Context> context_;
  Sockets sockets_;  // of the context
};

}  // namespace

std::unique_ptr<CollectiveBackend> make_gloo_backend(RankWatch& ranks, const ProcessEnvironment& environment,
                                                     const CommunicatorOptions& options) {
  return std::make_unique<GlooBackend>(ranks, environment, options);
}

std::string gloo_version() {
  return "Gloo " SINTER_GLOO_VERSION;
}

}  // namespace sinter::comm

#else

namespace sinter::comm {

std::unique_ptr<CollectiveBackend> make_gloo_backend(RankWatch&, const ProcessEnvironment&,
                                                     const CommunicatorOptions&) {
  throw Unsupported("[comm] this build was made without Gloo");
}

std::string gloo_version() {
  return {};
}

}  // namespace sinter::comm

#endif
