// Dropout: zeroes random elements.
#pragma once

#include <sinter/core/op/attributes.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct DropoutAttributes {
  double p = 0.5;  ///< the probability of zeroing an element, in [0, 1)

  bool operator==(const DropoutAttributes&) const = default;
  template <class Self = DropoutAttributes>
  static constexpr auto fields() {
    return std::tuple(field("p", &Self::p));
  }
};

/// Each element becomes 0 with probability p, independently and even if it is infinite or NaN, else x / (1 -
/// p). Any shape, floating-point
/// dtypes; p in [0, 1), else InvalidArgument; p = 0 returns x itself and draws nothing. Takes x.numel()
/// elements from `generator`. Source: N. Srivastava et al., "Dropout", JMLR 2014.
Tensor dropout(const Tensor& x, double p, Generator& generator = default_generator());

namespace update {
/// The op behind dropout: `key` holds seed and offset of a RandomKey as int64 (2) on x's device, so that a
/// captured job can change it. Element i is kept if uniform_from_word(word) >= p for the word that RandomKey
/// assigns to it. The gradient applies the op to dy with the same key: no mask is stored.
Tensor dropout_with_key(const Tensor& x, const Tensor& key, double p);
}  // namespace update

}  // namespace sinter::ops
