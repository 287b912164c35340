// Both gradients of PReLU in one pass over x and dy, deterministic: the terms of one reduction per channel,
// which write dx on the way.
#include <sinter/ops/common/channels/channel_reduce_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/prelu/prelu_cuda.h>
#include <sinter/ops/prelu/prelu_dispatch.h>
#include <sinter/ops/prelu/prelu_pack_cuda.h>

namespace sinter::ops {
namespace {

/// S: alpha's type, T or its compute type.
template <class T, class S>
struct PReluGradTerms {
  using C = compute_type<T>;
  /// As many as 64 registers hold.
  template <int pack, bool one_sum>
  static constexpr int kInFlight = one_sum ? (pack == 1        ? 8
                                              : sizeof(T) == 4 ? 5
                                                               : 4)
                                           : (sizeof(T) == 2 ? 3 : 4);
  template <int pack>
  struct Loaded {
    PReluWords<T, pack> x, dy;
  };

  const S* alpha;
  const T *x, *dy;
  T* dx;

  PReluGradTerms at(int64_t element, int64_t channel) const {
    return {alpha + channel, x + element, dy + element, dx + element};
  }
  template <int pack>
  __device__ __forceinline__ Loaded<pack> load(uint32_t i) const {
    return {PReluWords<T, pack>::load(x, i), PReluWords<T, pack>::load(dy, i)};
  }
  template <int pack>
  __device__ __forceinline__ Loaded<pack> load_some(uint32_t i, int from, int to) const {
    const auto words = [=](const T* tensor) {
      return PReluWords<T, pack>::of(
          [=](int e) { return e >= from && e < to ? tensor[int64_t{i} * pack + e] : T{}; });
    };
    return {words(x), words(dy)};
  }
  template <int pack>
  __device__ __forceinline__ PReluWords<S, pack> parameters(const RunChannels& of) const {
    const S first = alpha[of.first], next = alpha[of.next];
    return PReluWords<S, pack>::of([&](int e) { return e < of.change ? first : next; });
  }
  template <int pack>
  __device__ __forceinline__ PReluWords<S, pack> parameters(ElementChannels of) const {
    if (pack > 1 && of.adjoin(pack) && reinterpret_cast<uintptr_t>(alpha) % 16 == 0) {
      return PReluWords<S, pack>::load(alpha, of.channel / pack);
    }
    return PReluWords<S, pack>::of([&](int) {
      const S slope = alpha[of.channel];
      of.next();
      return slope;
    });
  }
  template <int pack, int n>
  __device__ __forceinline__ void add(const Loaded<pack>& loaded, const PReluWords<S, pack>& slopes,
                                      uint32_t i, int from, int to, C (&sums)[n]) const {
    const PReluWords<T, pack> result = prelu_pack(loaded.x, loaded.dy, slopes);
    if (to - from == pack) {
      result.store(dx, i);
    } else {
      result.store_some(dx + int64_t{i} * pack, from, to);
    }
    if constexpr (n < pack) {
      add_prelu_terms(loaded.x.kept(from, to), loaded.dy.kept(from, to), sums);
    } else {
      add_prelu_terms(loaded.x, loaded.dy, sums);
    }
  }
};

/// Of the inputs x and alpha of a query or a context.
template <class Call>
ChannelReduction reduction_of(const Call& call, int device, std::optional<ChannelWalk> forced) {
  const ChannelView view = prelu_view(call.input(0).shape, call.input(1).shape,
                                      call.template attributes<PReluAttributes>().layout);
  return {{1, view}, static_cast<int64_t>(size_of(call.input(0).dtype)), cuda::device_traits(device), forced};
}

template <int walk>
constexpr std::optional<ChannelWalk> kForced = walk < 0 ? std::nullopt
                                                        : std::optional(static_cast<ChannelWalk>(walk));

template <int walk>
size_t workspace_of(const KernelQuery& query) {
  return reduction_of(query, query.input(0).device.index, kForced<walk>)
      .table_bytes(size_of(accumulate_dtype(query.input(0).dtype)));
}

template <int walk>
bool can_walk_so(const KernelQuery& query) {
  const ChannelReduction of = reduction_of(query, query.input(0).device.index, {});
  const bool wide = query.is_aligned(0, 16) && query.is_aligned(2, 16);
  return can_walk(*kForced<walk>, of.shape.simplified(), wide ? 16 / of.element_bytes : 1);
}

template <int walk>
void run_walk(const KernelContext& context) {
  const ChannelReduction of = reduction_of(context, context.stream().device.index, kForced<walk>);
  dispatch_prelu(context.input(0).dtype, context.input(1).dtype, "prelu_grad", [&]<class T, class S> {
    const PReluGradTerms<T, S> terms{context.input(1).as<const S>(), context.input(0).as<const T>(),
                                     context.input(2).as<const T>(), context.output(0).as<T>()};
    const bool wide =
        cuda::is_aligned(terms.x, 16) && cuda::is_aligned(terms.dy, 16) && cuda::is_aligned(terms.dx, 16);
    channel_reduce<T>(context.stream(), of, wide, terms, context.workspace<compute_type<T>>(),
                      StoreSums<S>{context.output(1).as<S>()});
  });
}

}  // namespace

void register_prelu_grad_cuda(OpRegistry& registry) {
  registry.add_kernel(
      "prelu_grad", {.device = DeviceType::kCuda, .workspace_bytes = workspace_of<-1>, .run = run_walk<-1>});
  // Each way through a tensor by itself, for tests: none is chosen where it is not forced.
  const auto add_walk = [&]<ChannelWalk walk>(const char* name) {
    constexpr int number = static_cast<int>(walk);
    registry.add_kernel("prelu_grad",
                        {.device = DeviceType::kCuda,
                         .name = name,
                         .can_run = can_walk_so<number>,
                         .microseconds = [](const KernelQuery&, const Prepared*) { return best_if(false); },
                         .workspace_bytes = workspace_of<number>,
                         .run = run_walk<number>});
  };
  add_walk.operator()<ChannelWalk::kElements>("elements");
  add_walk.operator()<ChannelWalk::kRuns>("runs");
  add_walk.operator()<ChannelWalk::kPlanes>("planes");
}

}  // namespace sinter::ops
