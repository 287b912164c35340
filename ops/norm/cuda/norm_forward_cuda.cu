// Forward normalisation in passes over memory: statistics, finish, map.
#include <sinter/ops/norm/cuda/norm_cuda.h>
#include <sinter/ops/norm/cuda/norm_forward_terms_cuda.h>

namespace sinter::ops {
namespace {

template <class T>
struct FinishStatistics {
  using C = compute_type<T>;
  ChannelStatistics<C> statistics;
  Normalize<C>* parameters;
  StatisticsTerms<T> terms;
  double count;

  __device__ void operator()(int64_t c, const double* sums) const {
    Moments moments;
    if (count > 0.0)
      moments = moments_about(static_cast<double>(terms.parameter(c)), count, sums[0], sums[1]);
    const auto known = statistics.known(c);
    parameters[c] = statistics.use(known, moments.mean, statistics.variance_of(moments));
    statistics.learn(c, known, moments);
  }
};

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

/// Fills mean, inv_std and `parameters` of one tensor.
template <class T>
void find_statistics(const NormCall& call, const NormTensor& tensor, const Stream& stream,
                     Normalize<compute_type<T>>* parameters, void* table) {
  using C = compute_type<T>;
  const ChannelView view = call.view;
  const ChannelStatistics<C> statistics = statistics_of<T>(call, tensor);
  const double count = static_cast<double>(view.per_channel());
  if (!call.options.training || (tensor.sums.present && count > 0.0)) {
    cuda::launch(stream, cuda::grid_stride_shape(view.channels, 256), known_statistics_kernel<C>,
                 view.channels, statistics, parameters,
                 call.options.training ? tensor.sums.as<const C>() : static_cast<const C*>(nullptr), count);
    return;
  }
  const T* x = tensor.x.as<const T>();
  const StatisticsTerms<T> terms{x, PilotPlaces(view)};
  const int pack = allows_packs<T>({x}) ? kNormPack<T> : 1;
  const NormPlan plan = plan_norm_sums(simplified_norm_view(view), pack, pack,
                                       norm_blocks(stream.device.index, kStatisticsBlocks));
  constexpr int packs = sizeof(T) == sizeof(float) ? 8 : 4;
  sum_channels<T, packs, packs, kNormPack<T>>(stream, plan, terms, static_cast<C*>(table));
  finish_channels<2>(stream, plan, static_cast<const C*>(table),
                     FinishStatistics<T>{statistics, parameters, terms, count});
}

template <class T, AddendKind kind, Activation activation>
void map_forward(const NormCall& call, const Stream& stream,
                 const Normalize<compute_type<T>>* main_parameters,
                 const Normalize<compute_type<T>>* addend_parameters) {
  const auto map = map_of<T, kind, activation>(call, main_parameters, addend_parameters);
  map_channels_of<T, 2, 2, kNormPack<T>>(stream, simplified_norm_view(call.view),
                                         allows_packs<T>({map.x, map.addend, map.y}), map);
}

/// Workspace: the parameters of the map, for both tensors, then the table of the sums.
template <class T, AddendKind kind, Activation activation>
void forward(const NormCall& call, const Stream& stream, void* workspace) {
  using C = compute_type<T>;
  constexpr bool two = kind == AddendKind::kNormalized;
  const int64_t channels = call.view.channels;
  NormScratch scratch(workspace);
  auto* main_parameters = scratch.take<Normalize<C>>(channels);
  auto* addend_parameters = scratch.take<Normalize<C>>(two ? channels : 0);
  find_statistics<T>(call, call.main, stream, main_parameters, scratch.rest());
  if (two) find_statistics<T>(call, call.addend, stream, addend_parameters, scratch.rest());
  map_forward<T, kind, activation>(call, stream, main_parameters, addend_parameters);
}

template <class T, AddendKind kind>
void forward(const NormCall& call, const Stream& stream, void* workspace) {
  switch (call.options.activation) {
    case Activation::kNone:
      return forward<T, kind, Activation::kNone>(call, stream, workspace);
    case Activation::kRelu:
      return forward<T, kind, Activation::kRelu>(call, stream, workspace);
    case Activation::kPRelu:
      return forward<T, kind, Activation::kPRelu>(call, stream, workspace);
  }
}

template <class T>
void forward(const NormCall& call, const Stream& stream, void* workspace) {
  if (call.view.channels == 0) return;
  switch (call.addend_kind()) {
    case AddendKind::kNone:
      return forward<T, AddendKind::kNone>(call, stream, workspace);
    case AddendKind::kPlain:
      return forward<T, AddendKind::kPlain>(call, stream, workspace);
    case AddendKind::kNormalized:
      return forward<T, AddendKind::kNormalized>(call, stream, workspace);
  }
}

}  // namespace

size_t norm_streaming_bytes(const NormProblem& problem) {
  const size_t parameters = NormScratch::bytes(
      static_cast<size_t>(problem.view.channels) *
      (problem.dtype == DType::kFloat64 ? sizeof(Normalize<double>) : sizeof(Normalize<float>)));
  const size_t table = problem.options.training ? norm_table_bytes(problem.view, problem.dtype,
                                                                   problem.device, kStatisticsBlocks, 2)
                                                : 0;
  return parameters * (problem.options.normalize_addend ? 2 : 1) + table;
}

void norm_streaming(const NormCall& call, const Stream& stream, void* workspace) {
  dispatch_float(call.main.x.dtype, "batch_norm", [&]<class T> { forward<T>(call, stream, workspace); });
}

}  // namespace sinter::ops
