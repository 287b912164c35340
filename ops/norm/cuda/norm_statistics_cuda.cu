// The statistics of forward normalisation: sums and finish, or what is known without them.
#include <sinter/ops/norm/cuda/norm_forward_terms_cuda.h>
#include <sinter/ops/norm/cuda/norm_statistics_cuda.h>
#include <sinter/ops/norm/cuda/norm_sums_cuda.h>

namespace sinter::ops {
namespace {

template <class T>
struct FinishStatistics {
  using C = compute_type<T>;
  ChannelStatistics<C> statistics;
  Normalize<C>* parameters;
  StatisticsTerms<T> terms;
  double count;

  struct Known {
    C pilot;
    typename ChannelStatistics<C>::Known channel;
  };
  __device__ Known known(int64_t c) const {
    return {count > 0.0 ? terms.parameter(c) : C{0}, statistics.known(c)};
  }
  __device__ void operator()(int64_t c, const Known& known, const double* sums) const {
    Moments moments;
    if (count > 0.0) moments = moments_about(static_cast<double>(known.pilot), count, sums[0], sums[1]);
    parameters[c] = statistics.use(known.channel, moments.mean, statistics.variance_of(moments));
    statistics.learn(c, known.channel, moments);
  }
};

/// Sums of elements and squares, from those about the pilot.
template <class T, class To>
struct FinishSums {
  using C = compute_type<T>;
  StatisticsTerms<T> terms;
  int64_t channels;
  double count;
  To* to;
  To* number;  // of elements of a channel; null if nobody asks

  using Known = C;  // the pilot
  __device__ Known known(int64_t c) const { return count > 0.0 ? terms.parameter(c) : C{0}; }
  __device__ void operator()(int64_t c, const Known& pilot, const double* sums) const {
    Moments moments;
    if (count > 0.0) moments = moments_about(static_cast<double>(pilot), count, sums[0], sums[1]);
    to[c] = static_cast<To>(count * moments.mean);
    to[channels + c] = static_cast<To>(moments.squares + count * moments.mean * moments.mean);
    if (c == 0 && number != nullptr) *number = static_cast<To>(count);
  }
};

/// Sums the terms up, and finishes every channel.
template <class T, class Finish>
void sum_and_finish(const ChannelView& view, const Stream& stream, void* table, const Finish& finish) {
  using C = compute_type<T>;
  const int pack = has_norm_packs<T> && are_wide({finish.terms.x}) ? kSumPack<T> : 1;
  const NormPlan plan = plan_norm_sums(simplified_norm_view(view), pack, pack,
                                       norm_blocks(stream.device.index, kStatisticsBlocks));
  // In flight per thread. Where packs straddle planes, all of the plan's blocks have registers for fewer.
  constexpr int packs = sizeof(T) == sizeof(float) ? 8 : 4, straddling = packs * 3 / 4;
  sum_channels<T, packs, packs, kSumPack<T>, straddling>(stream, plan, finish.terms, static_cast<C*>(table));
  finish_channels<2>(stream, plan, static_cast<const C*>(table), finish);
}

template <class T, class To>
void sum_squares(const ChannelView& view, const void* x, const Stream& stream, To* sums, To* number,
                 void* table) {
  sum_and_finish<T>(view, stream, table,
                    FinishSums<T, To>{{static_cast<const T*>(x), PilotPlaces(view)},
                                      view.channels,
                                      static_cast<double>(view.per_channel()),
                                      sums,
                                      number});
}

/// Statistics that need no pass: those of sums over `count` elements, or else the running ones; of given ones
/// only the parameters are made.
template <class C>
__global__ void known_statistics_kernel(int64_t channels, ChannelStatistics<C> statistics, bool given,
                                        Normalize<C>* parameters, const C* sums, double count) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  const auto known = statistics.known(c, !given);
  if (given) {
    parameters[c] =
        make_normalize<C>(static_cast<double>(statistics.mean[c]), static_cast<double>(statistics.inv_std[c]),
                          static_cast<double>(known.weight), static_cast<double>(known.bias));
  } else if (sums == nullptr) {
    const auto mean = static_cast<double>(known.running_mean), var = static_cast<double>(known.running_var);
    parameters[c] = statistics.use(known, mean, var);
    statistics.keep(c, mean, var);
  } else {
    const Moments moments =
        moments_of_sums(count, static_cast<double>(sums[c]), static_cast<double>(sums[channels + c]));
    parameters[c] = statistics.use(known, moments.mean, statistics.variance_of(moments));
    statistics.learn(c, known, moments);
  }
}

}  // namespace

void find_statistics(const NormCall& call, const NormTensor& tensor, const Stream& stream, void* parameters,
                     void* table) {
  const ChannelView& view = call.view;
  const double count = static_cast<double>(view.per_channel());
  const bool given = call.options.statistics_given, training = call.options.training && !given;
  dispatch_float(tensor.x.dtype, "batch_norm", [&]<class T> {
    using C = compute_type<T>;
    const ChannelStatistics<C> statistics = statistics_of<T>(call, tensor);
    auto* const maps = static_cast<Normalize<C>*>(parameters);
    if (training && (!tensor.sums.present || count == 0.0)) {
      const StatisticsTerms<T> terms{tensor.x.as<const T>(), PilotPlaces(view)};
      sum_and_finish<T>(view, stream, table, FinishStatistics<T>{statistics, maps, terms, count});
    } else {
      cuda::launch(stream, cuda::grid_stride_shape(view.channels, 256), known_statistics_kernel<C>,
                   view.channels, statistics, bool{given}, maps,
                   training ? tensor.sums.as<const C>() : static_cast<const C*>(nullptr), count);
    }
  });
}

void sum_channels_and_squares(const ChannelView& view, DType dtype, const void* x, const Stream& stream,
                              void* sums, void* table) {
  dispatch_float(dtype, "conv2d_sums", [&]<class T> {
    using C = compute_type<T>;
    sum_squares<T, C>(view, x, stream, static_cast<C*>(sums), nullptr, table);
  });
}

void sum_for_ranks(const ChannelView& view, DType dtype, const void* x, const Stream& stream, double* sums,
                   void* table) {
  dispatch_float(dtype, "rank_statistics", [&]<class T> {
    sum_squares<T, double>(view, x, stream, sums, sums + 2 * view.channels, table);
  });
}

}  // namespace sinter::ops
