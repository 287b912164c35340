// Waits in Gloo that can be ended. Where a connection breaks while a message is half on its way, Gloo tells
// nobody who waits for the message's end (tcp::Pair knows such messages by buffers of an older kind), and
// they wait until their time is over. These are told by us.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

namespace sinter::comm {

/// The buffers with which somebody may wait.
class GlooWaits {
 public:
  using Buffer = gloo::transport::UnboundBuffer;

  /// Ends all waits, also those to come. May be called from any thread.
  void fail(const std::string& text) {
    const std::lock_guard lock(mutex_);
    failure_ = text.empty() ? "the job has ended" : text;
    for (Buffer* buffer : buffers_) end_waits(*buffer);
  }
  void add(Buffer& buffer) {
    const std::lock_guard lock(mutex_);
    buffers_.insert(&buffer);
    if (!failure_.empty()) end_waits(buffer);
  }
  void remove(Buffer& buffer) {
    const std::lock_guard lock(mutex_);
    buffers_.erase(&buffer);
  }
  /// What fail() was told, or "".
  std::string failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  static void end_waits(Buffer& buffer) {
    buffer.abortWaitSend();
    buffer.abortWaitRecv();
  }

  mutable std::mutex mutex_;  // guards what follows
  std::set<Buffer*> buffers_;
  std::string failure_;
};

// No function below says `override`: a later Gloo may ask for others beside them, and is then used as it is.

/// A buffer of Gloo's whose waits throw where they were ended, in place of an answer that nobody asks for.
class WakeableBuffer : public gloo::transport::UnboundBuffer {
 public:
  WakeableBuffer(std::unique_ptr<gloo::transport::UnboundBuffer> buffer, std::shared_ptr<GlooWaits> waits)
      : UnboundBuffer(buffer->ptr, buffer->size), buffer_(std::move(buffer)), waits_(std::move(waits)) {
    waits_->add(*buffer_);
  }
  virtual ~WakeableBuffer() { waits_->remove(*buffer_); }
  WakeableBuffer(const WakeableBuffer&) = delete;
  WakeableBuffer& operator=(const WakeableBuffer&) = delete;

  virtual bool waitRecv(int* rank, std::chrono::milliseconds timeout) {
    return buffer_->waitRecv(rank, timeout) || fail();
  }
  virtual bool waitSend(int* rank, std::chrono::milliseconds timeout) {
    return buffer_->waitSend(rank, timeout) || fail();
  }
  virtual void abortWaitRecv() { buffer_->abortWaitRecv(); }
  virtual void abortWaitSend() { buffer_->abortWaitSend(); }
  virtual void send(int to, uint64_t slot, size_t offset, size_t bytes) {
    buffer_->send(to, slot, offset, bytes);
  }
  virtual void recv(int from, uint64_t slot, size_t offset, size_t bytes) {
    buffer_->recv(from, slot, offset, bytes);
  }
  virtual void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t bytes) {
    buffer_->recv(std::move(from), slot, offset, bytes);
  }

 private:
  bool fail() const { throw gloo::IoException(waits_->failure()); }

  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  std::shared_ptr<GlooWaits> waits_;
};

/// Gives out such buffers, and otherwise is the context that it is made of.
class WakeableContext : public gloo::transport::Context {
 public:
  WakeableContext(std::shared_ptr<gloo::transport::Context> context, std::shared_ptr<GlooWaits> waits)
      : Context(context->rank, context->size), context_(std::move(context)), waits_(std::move(waits)) {
    setTimeout(context_->getTimeout());
  }

  virtual std::unique_ptr<gloo::transport::Pair>& getPair(int other) { return context_->getPair(other); }
  virtual std::unique_ptr<gloo::transport::Pair>& createPair(int other) {
    return context_->createPair(other);
  }
  virtual std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* data, size_t bytes) {
    return wrap<WakeableBuffer>(context_->createUnboundBuffer(data, bytes));
  }

 private:
  template <class Wrapped>
  std::unique_ptr<gloo::transport::UnboundBuffer> wrap(
      std::unique_ptr<gloo::transport::UnboundBuffer> buffer) {
    if constexpr (std::is_abstract_v<Wrapped>)
      return buffer;
    else
      return std::make_unique<Wrapped>(std::move(buffer), waits_);
  }

  std::shared_ptr<gloo::transport::Context> context_;
  std::shared_ptr<GlooWaits> waits_;
};

/// The connections of a job. Once they are made, wake_with() makes their waits such that can be ended.
class WakeableMesh final : public gloo::rendezvous::Context {
 public:
  using Context::Context;

  void adopt(std::shared_ptr<gloo::transport::Device> device,
             std::shared_ptr<gloo::transport::Context> transport) {
    device_ = std::move(device);
    transportContext_ = std::move(transport);
  }
  /// How long waits may take from now on.
  void set_time(std::chrono::milliseconds time) {
    setTimeout(time);
    transportContext_->setTimeout(time);
  }
  /// Says whether this Gloo lets it.
  bool wake_with(const std::shared_ptr<GlooWaits>& waits) { return wrap<WakeableContext>(waits); }

 private:
  template <class Wrapped>
  bool wrap(const std::shared_ptr<GlooWaits>& waits) {
    if constexpr (!std::is_abstract_v<Wrapped> && !std::is_abstract_v<WakeableBuffer>)
      transportContext_ = std::make_shared<Wrapped>(transportContext_, waits);
    return !std::is_abstract_v<Wrapped> && !std::is_abstract_v<WakeableBuffer>;
  }
};

}  // namespace sinter::comm
