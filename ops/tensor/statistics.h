// What is made of reductions: variance, norms, products, logarithms of sums, and questions about all
// elements.
#pragma once

#include <cstdint>
#include <vector>

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// As the reductions of reduce.h over `axes` (none given: all of them). Floating-point dtypes, which stay;
/// the 16-bit ones compute in float32.

/// The mean square of the distances from the mean, and its square root.
Tensor var(const Tensor& x, const IntList& axes = {}, const VarianceOptions& options = {});
Tensor std(const Tensor& x, const IntList& axes = {}, const VarianceOptions& options = {});

/// The Euclidean norm; its gradient where it is 0 is 0.
Tensor norm(const Tensor& x, const IntList& axes = {}, const ReduceOptions& options = {});

/// log(sum(exp(x))), without overflow; minus infinity where all elements are, and of none.
Tensor logsumexp(const Tensor& x, const IntList& axes = {}, const ReduceOptions& options = {});

/// The product; of no elements it is 1. Any dtype: floating-point ones stay, integers and bool are multiplied
/// in int64, which wraps around. Gradients are exact where elements are 0 too: nothing is divided. Halves are
/// multiplied with each other, then their halves, so that there are some log2(elements) small calls.
Tensor prod(const Tensor& x, const IntList& axes = {}, const ReduceOptions& options = {});

/// Whether all elements are true, or any is: any dtype, to bool, where every number but 0 is true, NaN too.
/// Of no elements all are, and none is any. No gradient.
Tensor all(const Tensor& x, const IntList& axes = {}, const ReduceOptions& options = {});
Tensor any(const Tensor& x, const IntList& axes = {}, const ReduceOptions& options = {});

}  // namespace sinter::ops
