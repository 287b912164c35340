// What the backends of tensors on CPUs share. Internal to core/comm.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <vector>

#include <sinter/core/base/float16.h>
#include <sinter/core/comm/collective_backend.h>

namespace sinter::comm {

/// The sum of a and b, each of `count` elements, element by element; `sum` may be one of them. 16-bit sums
/// are rounded at every addition.
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

/// Calls f.operator()<T>() with the type of the elements. Throws InvalidArgument for one that has no sums.
template <class F>
void with_summed_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kFloat32:
      return f.template operator()<float>();
    case DType::kFloat64:
      return f.template operator()<double>();
    case DType::kFloat16:
      return f.template operator()<float16>();
    case DType::kBFloat16:
      return f.template operator()<bfloat16>();
    case DType::kInt32:
      return f.template operator()<int32_t>();
    case DType::kInt64:
      return f.template operator()<int64_t>();
    default:
      throw_error<InvalidArgument>("[comm] there are no sums of {}", dtype);
  }
}

/// What it waits for has no time limit here: the watch over its progress ends it.
class HostBackend : public CollectiveBackend {
 public:
  HostBackend(int rank, int size) : rank_(rank), size_(static_cast<size_t>(size)) {}

  Progress progress() final {
    const int64_t ended = ended_;  // first: never more than were begun
    return {.queued = begun_, .ended = ended};
  }

  // All is summed and a part kept: Gloo's own reduce-scatter knows only pairs of buffers.
  void reduce_scatter(const void* from, void* to, int64_t count, DType dtype, const Stream& stream) final {
    const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
    std::vector<std::byte> all(bytes * size_);
    std::memcpy(all.data(), from, all.size());
    all_reduce(all.data(), count * static_cast<int64_t>(size_), dtype, stream);
    std::memcpy(to, all.data() + bytes * static_cast<size_t>(rank_), bytes);
  }

  void begin_all_reduce(const Communicator::Bucket& bucket, const Stream& stream) final {
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
  void end_all_reduce(const void* /*sums*/, const Stream& /*stream*/) final {}

 protected:
  static constexpr std::chrono::hours kForEver{100};

  /// Counts as work while it lives.
  class Work {
   public:
    explicit Work(HostBackend& backend) : backend_(backend) { ++backend_.begun_; }
    ~Work() { ++backend_.ended_; }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    HostBackend& backend_;
  };

  const int rank_;
  const size_t size_;

 private:
  std::atomic<int64_t> begun_ = 0, ended_ = 0;
};

}  // namespace sinter::comm
