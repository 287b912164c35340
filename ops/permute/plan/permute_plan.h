// How to permute: host logic that every device's kernel shares.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include <sinter/core/base/shape.h>

namespace sinter::ops {

/// A permutation in its simplest form: no axis of extent 1, and no two axes that stay neighbours in the same
/// order.
struct PermutePlan {
  enum class Kind : uint8_t {
    kCopy,       ///< the elements keep their order
    kTranspose,  ///< `batch` matrices of `rows` x `columns`, each transposed
    kGeneral,    ///< anything else
  };

  Kind kind = Kind::kCopy;
  int rank = 0;
  std::array<int64_t, kMaxRank> extents{};   ///< of the input; the first `rank` count
  std::array<int, kMaxRank> axes{};          ///< output axis i is input axis axes[i]
  int64_t batch = 1, rows = 1, columns = 1;  ///< for kTranspose: of the input

  /// Elements from one index of input axis `axis` to the next.
  int64_t input_stride(int axis) const;
  /// Elements from one index of output axis `axis` to the next.
  int64_t output_stride(int axis) const;
  /// True if the last axis stays the last one, so that whole rows move.
  bool keeps_last() const { return rank == 0 || axes[static_cast<size_t>(rank - 1)] == rank - 1; }
  /// The permutation of whole rows instead of elements, for a plan of rank > 1 that keeps its last axis.
  void drop_last();
};

/// "copy", "transpose" or "general".
std::string_view to_string(PermutePlan::Kind kind);

/// `axes` is a permutation of 0, ..., rank - 1. A tensor without elements gives a copy of rank 0.
PermutePlan plan_permute(const Shape& shape, std::span<const int> axes);

/// The axes of a permutation of `rank` axes, negative ones counted from the back. Throws InvalidArgument
/// unless every axis is there once.
std::array<int, kMaxRank> check_permutation(std::span<const int64_t> axes, int rank);

}  // namespace sinter::ops
