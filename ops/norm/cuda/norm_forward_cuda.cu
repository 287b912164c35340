// Forward normalisation in passes over memory: statistics, finish, map.
#include <sinter/ops/norm/cuda/norm_cuda.h>
#include <sinter/ops/norm/cuda/norm_forward_terms_cuda.h>
#include <sinter/ops/norm/cuda/norm_maps_cuda.h>
#include <sinter/ops/norm/cuda/norm_statistics_cuda.h>

namespace sinter::ops {
namespace {

template <class T, AddendKind kind, bool prelu>
void map_forward(const NormCall& call, const Stream& stream,
                 const Normalize<compute_type<T>>* main_parameters,
                 const Normalize<compute_type<T>>* addend_parameters) {
  constexpr int column_groups = kind == AddendKind::kNormalized ? 2 : 4;
  const auto map = map_of<T, kind, prelu>(call, main_parameters, addend_parameters);
  map_channels_of<T, column_groups, 2, cuda::kPackSize<T>>(stream, simplified_norm_view(call.view),
                                                           are_wide({map.x, map.addend, map.y}), map);
}

/// Workspace: the parameters of the map, for both tensors, then the table of the sums.
template <class T, AddendKind kind, bool prelu>
void forward(const NormCall& call, const Stream& stream, void* workspace) {
  using C = compute_type<T>;
  constexpr bool two = kind == AddendKind::kNormalized;
  const int64_t channels = call.view.channels;
  NormScratch scratch(workspace);
  auto* main_parameters = scratch.take<Normalize<C>>(channels);
  auto* addend_parameters = scratch.take<Normalize<C>>(two ? channels : 0);
  find_statistics(call, call.main, stream, main_parameters, scratch.rest());
  if (two) find_statistics(call, call.addend, stream, addend_parameters, scratch.rest());
  map_forward<T, kind, prelu>(call, stream, main_parameters, addend_parameters);
}

template <class T, AddendKind kind>
void forward(const NormCall& call, const Stream& stream, void* workspace) {
  call.options.activation == fused::Activation::kPRelu ? forward<T, kind, true>(call, stream, workspace)
                                                       : forward<T, kind, false>(call, stream, workspace);
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
  const bool sums = problem.options.training && !problem.options.statistics_given;
  return parameters * (problem.options.normalize_addend ? 2 : 1) +
         (sums ? norm_table_bytes(problem.view, problem.dtype, problem.device, kStatisticsBlocks, 2) : 0);
}

void norm_streaming(const NormCall& call, const Stream& stream, void* workspace) {
  dispatch_float(call.main.x.dtype, "batch_norm", [&]<class T> { forward<T>(call, stream, workspace); });
}

}  // namespace sinter::ops
