#include <limits>

#include <sinter/core/base/error.h>
#include <sinter/core/cuda/cublaslt/cublaslt_handles.h>
#include <sinter/core/cuda/cublaslt/cublaslt_matmul.h>
#include <sinter/core/runtime/plan_store.h>
#include <sinter/core/runtime/settings.h>

namespace sinter::cuda {
namespace {

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

cublasLtEpilogue_t epilogue_of(MatmulExtra extra) {
  switch (extra) {
    case MatmulExtra::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case MatmulExtra::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case MatmulExtra::kRowSums:
      return CUBLASLT_EPILOGUE_BGRADB;  // "B": to cuBLASLt our a is the second operand
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

struct Key {
  MatmulQuery query;
  bool allow_tf32 = false;

  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a over words
    const auto mix = [&hash](auto value) { hash = (hash ^ static_cast<uint64_t>(value)) * 0x100000001B3u; };
    const MatmulProblem& p = key.query.problem;
    mix(p.dtype), mix(p.transpose_a), mix(p.transpose_b), mix(p.m), mix(p.n), mix(p.k);
    mix(p.batch), mix(p.a_stride), mix(p.b_stride);
    mix(key.query.device), mix(key.query.extra), mix(key.query.workspace_limit), mix(key.allow_tf32);
    for (const size_t alignment : key.query.alignments) mix(alignment);
    return static_cast<size_t>(hash ^ (hash >> 32));
  }
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
                                   MatmulExtra extra = MatmulExtra::kNone, const void* array = nullptr) {
  cublasLtMatmulDesc_t made = nullptr;
  SINTER_CUBLAS_CHECK(cublasLtMatmulDescCreate(&made, types.compute, types.scale));
  CublasLtMatmulDesc descriptor(made);
  set(descriptor, CUBLASLT_MATMUL_DESC_TRANSA, problem.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(descriptor, CUBLASLT_MATMUL_DESC_TRANSB, problem.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (extra != MatmulExtra::kNone) {
    set(descriptor, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(extra));
    set(descriptor, CUBLASLT_MATMUL_DESC_BIAS_POINTER, array);
  }
  return descriptor;
}

class CublasLtPlan final : public MatmulPlan {
 public:
  explicit CublasLtPlan(const Key& key)
      : problem_(key.query.problem),
        types_(types_of(problem_.dtype, key.allow_tf32)),
        handle_(cublaslt_handle(key.query.device)) {
    const MatmulProblem& p = problem_;
    a_ = make_layout(types_.data, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.batch, p.a_stride);
    b_ = make_layout(types_.data, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.batch, p.b_stride);
    y_ = make_layout(types_.data, p.m, p.n, p.batch, p.m * p.n);
    if (key.query.extra != MatmulExtra::kNone) {
      // Some versions of cuBLASLt propose nothing while the array's address is not set; any will do.
      const auto* const any = reinterpret_cast<const void*>(uintptr_t{256});
      if (find_algorithm(key.query, make_descriptor(p, types_, key.query.extra, any)))
        extra_ = key.query.extra;
    }
    if (extra_ != MatmulExtra::kNone) return;
    descriptor_ = make_descriptor(p, types_);
    if (find_algorithm(key.query, descriptor_)) return;
    const auto& alignments = key.query.alignments;
    throw_error<DeviceError>(
        "[cublas] no algorithm for a product of {} with m={}, n={}, k={}, batch={}, transposes {}{}, "
        "alignments {}, {}, {}",
        p.dtype, p.m, p.n, p.k, p.batch, p.transpose_a, p.transpose_b, alignments[0], alignments[1],
        alignments[2]);
  }

  size_t workspace_bytes() const override { return workspace_bytes_; }
  bool does_extra() const override { return extra_ != MatmulExtra::kNone; }

  void run(const Stream& stream, const void* a, const void* b, void* y, const void* extra,
           void* workspace) const override {
    // The address of an extra's array belongs to the descriptor.
    const CublasLtMatmulDesc with_extra =
        does_extra() ? make_descriptor(problem_, types_, extra_, extra) : CublasLtMatmulDesc();
    const CublasLtMatmulDesc& descriptor = does_extra() ? with_extra : descriptor_;
    const float one = 1.0f, zero = 0.0f;
    const double double_one = 1.0, double_zero = 0.0;
    const bool is_double = types_.scale == CUDA_R_64F;
    SINTER_CUBLAS_CHECK(cublasLtMatmul(
        handle_, descriptor.get(), is_double ? static_cast<const void*>(&double_one) : &one, b, b_.get(), a,
        a_.get(), is_double ? static_cast<const void*>(&double_zero) : &zero, y, y_.get(), y, y_.get(),
        &algorithm_, workspace, workspace_bytes_, static_cast<cudaStream_t>(stream.native)));
  }

 private:
  bool find_algorithm(const MatmulQuery& query, const CublasLtMatmulDesc& descriptor) {
    cublasLtMatmulPreference_t made = nullptr;
    SINTER_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&made));
    const CublasLtMatmulPreference preference(made);
    const auto alignment = [&query](size_t i) { return static_cast<uint32_t>(query.alignments[i]); };
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{query.workspace_limit});
    // Partial sums of a split k stay in the compute type, and are added in a fixed order.
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(1));  // cuBLASLt's A is our b
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(0));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(2));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(2));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, descriptor.get(), b_.get(), a_.get(), y_.get(), y_.get(),
                                       preference.get(), 1, &result, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0))
      return false;
    SINTER_CUBLAS_CHECK(status);
    algorithm_ = result.algo;
    workspace_bytes_ = result.workspaceSize;
    return true;
  }

  MatmulProblem problem_;
  Types types_;
  cublasLtHandle_t handle_;
  CublasLtMatmulDesc descriptor_;  // empty if there is an extra
  CublasLtMatrixLayout a_, b_, y_;
  cublasLtMatmulAlgo_t algorithm_{};
  size_t workspace_bytes_ = 0;
  MatmulExtra extra_ = MatmulExtra::kNone;
};

}  // namespace

std::shared_ptr<const MatmulPlan> find_matmul_plan(const MatmulQuery& query) {
  SINTER_ASSERT(query.problem.batch <= std::numeric_limits<int32_t>::max(),
                "[matmul] a batch of {} is too large for cuBLASLt", query.problem.batch);
  // Never destroyed, like cuBLASLt's handles.
  static auto& plans = *new PlanStore<Key, MatmulPlan, KeyHash>;
  const Key key{query, settings::allow_tf32()};
  if (auto found = plans.find(key)) return *std::move(found);
  return plans.add(key, std::make_shared<const CublasLtPlan>(key), settings::plan_limit());
}

size_t cublaslt_version() {
  return cublasLtGetVersion();
}

}  // namespace sinter::cuda
