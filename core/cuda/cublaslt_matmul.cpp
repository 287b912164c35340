#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <memory>
#include <optional>

#include <sinter/core/base/error.h>
#include <sinter/core/cuda/cublaslt_handles.h>
#include <sinter/core/cuda/cublaslt_matmul.h>
#include <sinter/core/runtime/plan_store.h>
#include <sinter/core/runtime/settings.h>

namespace sinter::cuda {
namespace {

constexpr uint32_t kBestAlignment = 16;

struct Types {
  cudaDataType_t data, scale;
  cublasComputeType_t compute;
};

Types types_of(DType dtype, bool allow_tf32) {
  switch (dtype) {
    case DType::kFloat32:
      return {CUDA_R_32F, CUDA_R_32F, allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
    case DType::kFloat16:
      return {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::kBFloat16:
      return {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::kFloat64:
      return {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
    default:
      throw_error<InvalidArgument>("[matmul] expected a floating-point dtype but got {}", dtype);
  }
}

/// The largest power of two up to kBestAlignment that divides an address.
uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data) | kBestAlignment;
  return uint32_t{1} << std::countr_zero(address);
}

/// The array that an epilogue reads or writes, and cuBLASLt's name for what it does.
struct Extra {
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* data = nullptr;

  Extra() = default;
  /// None if the array is not aligned.
  explicit Extra(const MatmulEpilogue& asked) {
    const void* const array = asked.bias != nullptr ? asked.bias : asked.row_sums;
    if (array == nullptr || alignment_of(array) != kBestAlignment) return;
    data = array;
    // "B": to cuBLASLt our a is the second operand.
    epilogue = asked.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_BGRADB;
  }
};

/// A problem with all that decides which algorithm it gets.
struct Key {
  MatmulProblem problem;
  int device = 0;
  bool allow_tf32 = false;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::array<uint32_t, 3> alignments{};  // of a, b and y
  size_t workspace_bytes = 0;

  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a over words
    const auto mix = [&hash](auto value) { hash = (hash ^ static_cast<uint64_t>(value)) * 0x100000001B3u; };
    const MatmulProblem& p = key.problem;
    mix(p.dtype), mix(p.transpose_a), mix(p.transpose_b), mix(p.m), mix(p.n), mix(p.k);
    mix(p.batch), mix(p.a_stride), mix(p.b_stride);
    mix(key.device), mix(key.allow_tf32), mix(key.epilogue), mix(key.workspace_bytes);
    for (const uint32_t alignment : key.alignments) mix(alignment);
    return static_cast<size_t>(hash ^ (hash >> 32));
  }
};

/// How a problem is computed; unchanging once made, and so shared by threads.
struct Plan {
  cublasLtHandle_t handle = nullptr;
  CublasLtMatmulDesc descriptor;  // unless there is an epilogue, whose address belongs to the descriptor
  CublasLtMatrixLayout a, b, y;
  cublasLtMatmulAlgo_t algorithm{};
  bool has_epilogue = false;
};

template <class T>
void set(const CublasLtMatmulDesc& descriptor, cublasLtMatmulDescAttributes_t name, const T& value) {
  SINTER_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(descriptor.get(), name, &value, sizeof(value)));
}
template <class T>
void set(const CublasLtMatrixLayout& layout, cublasLtMatrixLayoutAttribute_t name, const T& value) {
  SINTER_CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout.get(), name, &value, sizeof(value)));
}
template <class T>
void set(const CublasLtMatmulPreference& preference, cublasLtMatmulPreferenceAttributes_t name,
         const T& value) {
  SINTER_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference.get(), name, &value, sizeof(value)));
}

/// The layout of a row-major (rows, columns) matrix: to cuBLASLt, which counts by columns, its transpose.
CublasLtMatrixLayout make_layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t batch,
                                 int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  SINTER_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&made, type, static_cast<uint64_t>(columns),
                                                 static_cast<uint64_t>(rows), columns));
  CublasLtMatrixLayout layout(made);
  if (batch > 1) {
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }
  return layout;
}

/// y^T = op(b)^T op(a)^T: seen by columns, every matrix already is its transpose, so b comes first and
/// nothing else changes.
CublasLtMatmulDesc make_descriptor(const MatmulProblem& problem, const Types& types,
                                   const Extra& extra = {}) {
  cublasLtMatmulDesc_t made = nullptr;
  SINTER_CUBLAS_CHECK(cublasLtMatmulDescCreate(&made, types.compute, types.scale));
  CublasLtMatmulDesc descriptor(made);
  set(descriptor, CUBLASLT_MATMUL_DESC_TRANSA, problem.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(descriptor, CUBLASLT_MATMUL_DESC_TRANSB, problem.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (extra.data != nullptr) {
    set(descriptor, CUBLASLT_MATMUL_DESC_EPILOGUE, extra.epilogue);
    set(descriptor, CUBLASLT_MATMUL_DESC_BIAS_POINTER, extra.data);
  }
  return descriptor;
}

std::optional<cublasLtMatmulAlgo_t> find_algorithm(const Key& key, const Plan& plan,
                                                   const CublasLtMatmulDesc& descriptor) {
  cublasLtMatmulPreference_t made = nullptr;
  SINTER_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&made));
  const CublasLtMatmulPreference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{key.workspace_bytes});
  // Partial sums of a split k stay in the compute type, and are added in a fixed order.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignments[1]);  // cuBLASLt's A is our b
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignments[0]);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignments[2]);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignments[2]);

  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(plan.handle, descriptor.get(), plan.b.get(), plan.a.get(), plan.y.get(),
                                     plan.y.get(), preference.get(), 1, &result, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0))
    return std::nullopt;
  SINTER_CUBLAS_CHECK(status);
  return result.algo;
}

/// `extra` is any that fits the key: some versions of cuBLASLt propose nothing while its address is not set.
std::shared_ptr<const Plan> make_plan(const Key& key, const Extra& extra) {
  const MatmulProblem& p = key.problem;
  const Types types = types_of(p.dtype, key.allow_tf32);
  auto plan = std::make_shared<Plan>();
  plan->handle = cublaslt_handle(key.device);
  plan->a =
      make_layout(types.data, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.batch, p.a_stride);
  plan->b =
      make_layout(types.data, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.batch, p.b_stride);
  plan->y = make_layout(types.data, p.m, p.n, p.batch, p.m * p.n);
  std::optional<cublasLtMatmulAlgo_t> algorithm;
  if (extra.data != nullptr) {
    algorithm = find_algorithm(key, *plan, make_descriptor(p, types, extra));
    plan->has_epilogue = algorithm.has_value();
  }
  if (!algorithm) {
    plan->descriptor = make_descriptor(p, types);
    algorithm = find_algorithm(key, *plan, plan->descriptor);
  }
  if (!algorithm) {
    throw_error<DeviceError>(
        "[cublas] no algorithm for a product of {} with m={}, n={}, k={}, batch={}, transposes {}{}, "
        "alignments {}, {}, {}",
        p.dtype, p.m, p.n, p.k, p.batch, p.transpose_a, p.transpose_b, key.alignments[0], key.alignments[1],
        key.alignments[2]);
  }
  plan->algorithm = *algorithm;
  return plan;
}

std::shared_ptr<const Plan> find_plan(const Key& key, const Extra& extra) {
  // Never destroyed, like cuBLASLt's handles.
  static auto& plans = *new PlanStore<Key, Plan, KeyHash>;
  if (auto found = plans.find(key)) return *std::move(found);
  return plans.add(key, make_plan(key, extra), settings::plan_limit());
}

}  // namespace

bool run_matmul(const Stream& stream, const MatmulProblem& problem, const void* a, const void* b, void* y,
                const MatmulEpilogue& epilogue, void* workspace, size_t workspace_bytes) {
  SINTER_ASSERT(problem.batch <= std::numeric_limits<int32_t>::max(),
                "[matmul] a batch of {} is too large for cuBLASLt", problem.batch);
  const Extra extra(epilogue);
  const Key key{.problem = problem,
                .device = stream.device.index,
                .allow_tf32 = settings::allow_tf32(),
                .epilogue = extra.epilogue,
                .alignments = {alignment_of(a), alignment_of(b), alignment_of(y)},
                .workspace_bytes = workspace_bytes};
  const std::shared_ptr<const Plan> plan = find_plan(key, extra);
  const Types types = types_of(problem.dtype, key.allow_tf32);
  const CublasLtMatmulDesc with_epilogue =
      plan->has_epilogue ? make_descriptor(problem, types, extra) : CublasLtMatmulDesc();
  const CublasLtMatmulDesc& descriptor = plan->has_epilogue ? with_epilogue : plan->descriptor;

  const float one = 1.0f, zero = 0.0f;
  const double double_one = 1.0, double_zero = 0.0;
  const bool is_double = types.scale == CUDA_R_64F;
  SINTER_CUBLAS_CHECK(cublasLtMatmul(
      plan->handle, descriptor.get(), is_double ? static_cast<const void*>(&double_one) : &one, b,
      plan->b.get(), a, plan->a.get(), is_double ? static_cast<const void*>(&double_zero) : &zero, y,
      plan->y.get(), y, plan->y.get(), &plan->algorithm, workspace, workspace_bytes,
      static_cast<cudaStream_t>(stream.native)));
  return plan->has_epilogue || (epilogue.bias == nullptr && epilogue.row_sums == nullptr);
}

}  // namespace sinter::cuda
