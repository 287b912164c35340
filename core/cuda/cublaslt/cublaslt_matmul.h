// cuBLASLt's matrix products in row-major terms: a problem in, a plan out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <sinter/core/base/dtype.h>
#include <sinter/core/runtime/backend.h>

namespace sinter::cuda {

/// y = op(a) op(b) for each matrix of a batch, all row-major and dense: op(a) (m, k), stored as (k, m) if
/// transposed, op(b) (k, n), stored as (n, k) if transposed, y (m, n). No extent is zero.
struct MatmulProblem {
  DType dtype = DType::kFloat32;
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  int64_t a_stride = 0,
          b_stride = 0;  ///< elements from one matrix of the batch to the next; 0: the same matrix

  bool operator==(const MatmulProblem&) const = default;
};

/// The most scratch that a product asks for; more does not help.
inline constexpr size_t kMatmulWorkspace = size_t{32} << 20;

/// The address, in bytes, that serves every algorithm.
inline constexpr size_t kMatmulAlignment = 16;

/// What a product can do besides, in the same kernel.
enum class MatmulExtra : uint8_t {
  kNone,
  kBias,    ///< adds a vector (n) to each row of y
  kRowSums  ///< gives the sums (m) along the rows of op(a)
};

/// A problem with all that decides which algorithm it gets.
struct MatmulQuery {
  MatmulProblem problem;
  int device = 0;
  MatmulExtra extra = MatmulExtra::kNone;  ///< its array is aligned to kMatmulAlignment
  /// Of a, b and y: the largest power of two up to kMatmulAlignment that divides the address.
  std::array<size_t, 3> alignments{kMatmulAlignment, kMatmulAlignment, kMatmulAlignment};
  size_t workspace_limit = kMatmulWorkspace;

  bool operator==(const MatmulQuery&) const = default;
};

/// An algorithm that is ready to run. Safe to use from several threads.
class MatmulPlan {
 public:
  virtual ~MatmulPlan() = default;
  virtual size_t workspace_bytes() const = 0;
  /// Whether the plan does the extra that was asked for; if not, nothing of it is done.
  virtual bool does_extra() const = 0;
  /// Queues the product. `extra` is the array of MatmulExtra, null for none. The stream's device is the
  /// current one. Throws DeviceError.
  virtual void run(const Stream& stream, const void* a, const void* b, void* y, const void* extra,
                   void* workspace) const = 0;
};

/// cuBLASLt's first choice for the problem under the present settings, asked for once and then remembered,
/// up to settings::plan_limit() of them. 16-bit types sum in float32, float32 multiplies in TF32 if
/// settings::allow_tf32(). Throws DeviceError.
std::shared_ptr<const MatmulPlan> find_matmul_plan(const MatmulQuery& query);

/// As the library counts: 130100 and the like.
size_t cublaslt_version();

}  // namespace sinter::cuda
