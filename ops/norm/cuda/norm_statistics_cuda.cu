// The statistics of forward normalisation: sums and finish, or what is known without them.
#include <sinter/ops/norm/cuda/norm_forward_terms_cuda.h>
#include <sinter/ops/norm/cuda/norm_statistics_cuda.h>
#include <sinter/ops/norm/cuda/norm_sums_cuda.h>

namespace sinter::ops {
namespace {

template <class T>
struct FinishStatistics {
  using C = compute_type<T>;
  struct Tensor {
    ChannelStatistics<C> statistics;
    Normalize<C>* parameters;
    StatisticsTerms<T> terms;
  };
  Tensor main, second;  // second: of two tensors
  double count;

  struct Known {
    C pilot;
    typename ChannelStatistics<C>::Known channel;
  };
  __device__ const Tensor& of(int tensor) const { return tensor == 0 ? main : second; }
  __device__ Known known(int tensor, int64_t c) const {
    return {count > 0.0 ? of(tensor).terms.parameter(c) : C{0}, of(tensor).statistics.known(c)};
  }
  __device__ void operator()(int tensor, int64_t c, const Known& known, const double* sums) const {
    const Tensor& own = of(tensor);
    Moments moments;
    if (count > 0.0) moments = moments_about(static_cast<double>(known.pilot), count, sums[0], sums[1]);
    own.parameters[c] = own.statistics.use(known.channel, moments.mean, own.statistics.variance_of(moments));
    own.statistics.learn(c, known.channel, moments);
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
  __device__ Known known(int, int64_t c) const { return count > 0.0 ? terms.parameter(c) : C{0}; }
  __device__ void operator()(int, int64_t c, const Known& pilot, const double* sums) const {
    Moments moments;
    if (count > 0.0) moments = moments_about(static_cast<double>(pilot), count, sums[0], sums[1]);
    to[c] = static_cast<To>(count * moments.mean);
    to[channels + c] = static_cast<To>(moments.squares + count * moments.mean * moments.mean);
    if (c == 0 && number != nullptr) *number = static_cast<To>(count);
  }
};

/// Sums `terms`, StatisticsTerms or those of a pair, up, and finishes every channel.
template <class T, class Terms, class Finish>
void sum_and_finish(const ChannelView& view, const Terms& terms, bool wide, const Stream& stream, void* table,
                    const Finish& finish) {
  using C = compute_type<T>;
  constexpr bool pair = Terms::kTensors > 1;
  const int pack = wide ? kSumPack<T> : 1;
  const NormPlan plan =
      plan_norm_sums(simplified_norm_view(view), pack, pack,
                     norm_blocks(stream.device.index, pair ? kPairedStatisticsBlocks : kStatisticsBlocks));
  // In flight per thread. Where packs straddle planes, all of the plan's blocks have registers for fewer.
  constexpr int packs = sizeof(T) == sizeof(float) ? 8 : 4, straddling = packs * 3 / 4;
  sum_channels<T, packs, packs, kSumPack<T>, straddling>(stream, plan, terms, static_cast<C*>(table));
  finish_channels<2, Terms::kTensors>(stream, plan, static_cast<const C*>(table), finish);
}

/// Statistics that need no pass: those of given sums over `count` elements, or the running ones.
template <class C>
__global__ void known_statistics_kernel(int64_t channels, ChannelStatistics<C> statistics,
                                        Normalize<C>* parameters, const C* sums, double count) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  const auto known = statistics.known(c);
  if (sums == nullptr) {
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

/// The map of a tensor whose statistics are given.
template <class C>
__global__ void given_statistics_kernel(int64_t channels, ChannelStatistics<C> statistics,
                                        Normalize<C>* parameters) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  const auto known = statistics.known(c, false);
  parameters[c] =
      make_normalize<C>(static_cast<double>(statistics.mean[c]), static_cast<double>(statistics.inv_std[c]),
                        static_cast<double>(known.weight), static_cast<double>(known.bias));
}

}  // namespace

template <class T>
void find_statistics(const NormCall& call, const NormTensor& tensor, const Stream& stream,
                     Normalize<compute_type<T>>* parameters, void* table) {
  using C = compute_type<T>;
  const ChannelView view = call.view;
  const ChannelStatistics<C> statistics = statistics_of<T>(call, tensor);
  const double count = static_cast<double>(view.per_channel());
  if (call.options.statistics_given) {
    cuda::launch(stream, cuda::grid_stride_shape(view.channels, 256), given_statistics_kernel<C>,
                 view.channels, statistics, parameters);
    return;
  }
  if (!call.options.training || (tensor.sums.present && count > 0.0)) {
    cuda::launch(stream, cuda::grid_stride_shape(view.channels, 256), known_statistics_kernel<C>,
                 view.channels, statistics, parameters,
                 call.options.training ? tensor.sums.as<const C>() : static_cast<const C*>(nullptr), count);
    return;
  }
  const T* x = tensor.x.as<const T>();
  const StatisticsTerms<T> terms{x, PilotPlaces(view)};
  const typename FinishStatistics<T>::Tensor finished{statistics, parameters, terms};
  sum_and_finish<T>(view, terms, are_wide({x}), stream, table,
                    FinishStatistics<T>{finished, finished, count});
}

template <class T>
void find_paired_statistics(const NormCall& call, const Stream& stream,
                            Normalize<compute_type<T>>* main_parameters,
                            Normalize<compute_type<T>>* addend_parameters, void* table) {
  const PilotPlaces places(call.view);
  const StatisticsTerms<T> main{call.main.x.as<const T>(), places},
      addend{call.addend.x.as<const T>(), places};
  const FinishStatistics<T> finish{{statistics_of<T>(call, call.main), main_parameters, main},
                                   {statistics_of<T>(call, call.addend), addend_parameters, addend},
                                   static_cast<double>(call.view.per_channel())};
  sum_and_finish<T>(call.view, PairedStatisticsTerms<T>{main, addend.x}, are_wide({main.x, addend.x}), stream,
                    table, finish);
}

template <class T>
void sum_statistics(const ChannelView& view, const T* x, const Stream& stream, double* sums, void* table) {
  const StatisticsTerms<T> terms{x, PilotPlaces(view)};
  sum_and_finish<T>(view, terms, are_wide({x}), stream, table,
                    FinishSums<T, double>{terms, view.channels, static_cast<double>(view.per_channel()), sums,
                                          sums + 2 * view.channels});
}

template <class T>
void sum_channels_and_squares(const ChannelView& view, const T* x, const Stream& stream,
                              compute_type<T>* sums, void* table) {
  using C = compute_type<T>;
  const StatisticsTerms<T> terms{x, PilotPlaces(view)};
  sum_and_finish<T>(
      view, terms, are_wide({x}), stream, table,
      FinishSums<T, C>{terms, view.channels, static_cast<double>(view.per_channel()), sums, nullptr});
}

template void sum_channels_and_squares<float>(const ChannelView&, const float*, const Stream&, float*, void*);
template void sum_channels_and_squares<double>(const ChannelView&, const double*, const Stream&, double*,
                                               void*);
template void sum_channels_and_squares<float16>(const ChannelView&, const float16*, const Stream&, float*,
                                                void*);
template void sum_channels_and_squares<bfloat16>(const ChannelView&, const bfloat16*, const Stream&, float*,
                                                 void*);

template void sum_statistics<float>(const ChannelView&, const float*, const Stream&, double*, void*);
template void sum_statistics<double>(const ChannelView&, const double*, const Stream&, double*, void*);
template void sum_statistics<float16>(const ChannelView&, const float16*, const Stream&, double*, void*);
template void sum_statistics<bfloat16>(const ChannelView&, const bfloat16*, const Stream&, double*, void*);

template void find_paired_statistics<float>(const NormCall&, const Stream&, Normalize<float>*,
                                            Normalize<float>*, void*);
template void find_paired_statistics<double>(const NormCall&, const Stream&, Normalize<double>*,
                                             Normalize<double>*, void*);
template void find_paired_statistics<float16>(const NormCall&, const Stream&, Normalize<float>*,
                                              Normalize<float>*, void*);
template void find_paired_statistics<bfloat16>(const NormCall&, const Stream&, Normalize<float>*,
                                               Normalize<float>*, void*);

template void find_statistics<float>(const NormCall&, const NormTensor&, const Stream&, Normalize<float>*,
                                     void*);
template void find_statistics<double>(const NormCall&, const NormTensor&, const Stream&, Normalize<double>*,
                                      void*);
template void find_statistics<float16>(const NormCall&, const NormTensor&, const Stream&, Normalize<float>*,
                                       void*);
template void find_statistics<bfloat16>(const NormCall&, const NormTensor&, const Stream&, Normalize<float>*,
                                        void*);

}  // namespace sinter::ops
