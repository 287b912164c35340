// The maths of the activations, for every backend: forward beside derivative.
#pragma once

#include <cmath>
#include <tuple>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/common/coarse_math.h>
#include <sinter/ops/common/elementary_math.h>
#include <sinter/ops/common/elementwise_op.h>

namespace sinter::ops {

template <class C>
struct Relu {
  static constexpr const char* kName = "relu";
  static constexpr Role kRole = Role::kRelu;
  static constexpr auto kReads = DerivativeReads::kOutput;
  static constexpr bool kPiecewiseLinear = true;

  SINTER_HOST_DEVICE C operator()(C x) const { return x > C{0} || x != x ? x : C{0}; }
  SINTER_HOST_DEVICE C derivative(C y, C dy) const { return y <= C{0} ? C{0} : dy; }  // dy where y is NaN
};

template <class C>
struct Sigmoid {
  static constexpr const char* kName = "sigmoid";
  static constexpr auto kReads = DerivativeReads::kOutput;

  SINTER_HOST_DEVICE C operator()(C x) const { return C{1} / (C{1} + math::exp(-x)); }
  SINTER_HOST_DEVICE float coarse(float x) const {
    return math::coarse::divide(1.0f, 1.0f + math::coarse::exp(-x));
  }
  SINTER_HOST_DEVICE C derivative(C y, C dy) const { return dy * y * (C{1} - y); }
  Tensor second(const Tensor& y, const Tensor& dy) const;
};

template <class C>
struct Silu {
  static constexpr const char* kName = "silu";
  static constexpr auto kReads = DerivativeReads::kInput;

  SINTER_HOST_DEVICE C operator()(C x) const { return math::divide(x, C{1} + math::exp(-x)); }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const {
    const C s = Sigmoid<C>()(x);
    return dy * s * (C{1} + x * (C{1} - s));
  }
  Tensor second(const Tensor& x, const Tensor& dy) const;
  SINTER_HOST_DEVICE float coarse(float x) const {
    return math::coarse::divide(x, 1.0f + math::coarse::exp(-x));
  }
  SINTER_HOST_DEVICE float coarse_derivative(float x, float dy) const {
    const float s = Sigmoid<float>().coarse(x);
    return dy * s * (1.0f + x * (1.0f - s));
  }
};

/// The normal distribution at some x, and its density.
template <class C>
struct NormalAt {
  C distribution, density;
};

SINTER_HOST_DEVICE inline NormalAt<double> normal_at(double x) {
  return {0.5 * std::erfc(-x * 0.70710678118654752440),       // x / sqrt(2); erfc keeps its precision
          0.39894228040143267794 * math::exp(-0.5 * x * x)};  // in the lower tail; 1 / sqrt(2 pi)
}

/// The lower tail is exp(-x^2 / 2) t p(t) with t = 1 / (1 + 0.28 |x|); p is interpolated at the nodes of
/// Chebyshev's polynomial of degree 9 in t in [0, 1], within 2e-7 of the tail. With what rounding x^2 adds,
/// the tail is within 1e-6 of itself down to x = -5, and within 5e-6 below. One exponential gives both
/// values.
SINTER_HOST_DEVICE inline NormalAt<float> normal_at(float x) {
  const float magnitude = std::abs(x);
  const float a = magnitude > 15.0f ? 15.0f : magnitude;  // NaN stays NaN; beyond, the tail is 0
  const float power = math::exp(-0.5f * a * a);
#if defined(__CUDA_ARCH__)
  const float t = __fdividef(1.0f, 1.0f + 0.28f * a);
#else
  const float t = 1.0f / (1.0f + 0.28f * a);
#endif
  float p = 0.0261485097f;
  p = p * t - 0.099127217f;
  p = p * t + 0.101123454f;
  p = p * t - 0.0135513227f;
  p = p * t + 0.0759828483f;
  p = p * t + 0.0828455456f;
  p = p * t + 0.103178833f;
  p = p * t + 0.111695515f;
  p = p * t + 0.111703889f;
  const float tail = power * (t * p);
  return {x > 0.0f ? 1.0f - tail : tail, 0.39894228f * power};
}

template <class C>
struct Gelu {
  static constexpr const char* kName = "gelu";
  static constexpr auto kReads = DerivativeReads::kInput;

  SINTER_HOST_DEVICE C operator()(C x) const { return x * normal_at(x).distribution; }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const {
    const NormalAt<C> normal = normal_at(x);
    return dy * (normal.distribution + x * normal.density);
  }
  Tensor second(const Tensor& x, const Tensor& dy) const;
  SINTER_HOST_DEVICE float coarse(float x) const { return x * math::coarse::normal(x).distribution; }
  SINTER_HOST_DEVICE float coarse_derivative(float x, float dy) const {
    const math::coarse::Normal normal = math::coarse::normal(x);
    return dy * (normal.distribution + x * normal.density);
  }
};

// Here one selection follows the other: the CPU's compiler does not vectorise nested ones.
template <class C>
struct Hardsigmoid {
  static constexpr const char* kName = "hardsigmoid";
  static constexpr auto kReads = DerivativeReads::kInput;
  static constexpr bool kPiecewiseLinear = true;

  SINTER_HOST_DEVICE C operator()(C x) const {
    const C line = x * C(1.0 / 6.0) + C(0.5);
    const C raised = x <= C{-3} ? C{0} : line;
    return x >= C{3} ? C{1} : raised;
  }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const {
    const C raised = x > C{-3} ? dy * C(1.0 / 6.0) : C{0};
    return x < C{3} ? raised : C{0};
  }
};

template <class C>
struct Hardswish {
  static constexpr const char* kName = "hardswish";
  static constexpr auto kReads = DerivativeReads::kInput;

  SINTER_HOST_DEVICE C operator()(C x) const {
    const C curve = x * (x * C(1.0 / 6.0) + C(0.5));
    const C raised = x <= C{-3} ? C{0} : curve;
    return x >= C{3} ? x : raised;
  }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const {
    const C slope = dy * (x * C(1.0 / 3.0) + C(0.5));
    const C raised = x <= C{-3} ? C{0} : slope;
    return x >= C{3} ? dy : raised;
  }
  Tensor second(const Tensor& x, const Tensor& dy) const;
};

template <class C>
struct Softplus {
  static constexpr const char* kName = "softplus";
  static constexpr Precision kPrecision = Precision::kFloat32;
  static constexpr auto kReads = DerivativeReads::kInput;
  C beta = C{1};
  bool operator==(const Softplus&) const = default;
  template <class Self = Softplus>
  static constexpr auto fields() {
    return std::tuple(field("beta", &Self::beta));
  }

  SINTER_HOST_DEVICE C operator()(C x) const {  // exp of what is never positive cannot overflow
    const C bend = math::log1p_of_unit(math::exp(-std::abs(beta * x)));
    return (x > C{0} ? x : C{0}) + bend * (C{1} / beta);
  }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const { return dy * Sigmoid<C>()(beta * x); }
  Tensor second(const Tensor& x, const Tensor& dy) const;
  SINTER_HOST_DEVICE float coarse(float x) const {
    const float bend = math::coarse::log1p_of_unit(math::coarse::exp(-std::abs(beta * x)));
    return (x > 0.0f ? x : 0.0f) + bend * math::coarse::divide(1.0f, beta);
  }
  SINTER_HOST_DEVICE float coarse_derivative(float x, float dy) const {
    return dy * Sigmoid<float>().coarse(beta * x);
  }
  void check(const InferContext& context) const {
    SINTER_CHECK(beta > 0, "[{}] expected beta > 0 but got {}", context.tag(), beta);
  }
};

template <class C>
struct LeakyRelu {
  static constexpr const char* kName = "leaky_relu";
  static constexpr auto kReads = DerivativeReads::kInput;
  static constexpr bool kPiecewiseLinear = true;
  C negative_slope = C(0.01);
  bool operator==(const LeakyRelu&) const = default;
  template <class Self = LeakyRelu>
  static constexpr auto fields() {
    return std::tuple(field("negative_slope", &Self::negative_slope));
  }

  SINTER_HOST_DEVICE C operator()(C x) const { return x > C{0} ? x : x * negative_slope; }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const { return x > C{0} ? dy : dy * negative_slope; }
};

template <class C>
struct Relu6 {
  static constexpr const char* kName = "relu6";
  static constexpr auto kReads = DerivativeReads::kOutput;
  static constexpr bool kPiecewiseLinear = true;

  SINTER_HOST_DEVICE C operator()(C x) const {
    const C raised = Relu<C>()(x);
    return raised > C{6} ? C{6} : raised;
  }
  SINTER_HOST_DEVICE C derivative(C y, C dy) const {
    const C above = Relu<C>().derivative(y, dy);
    return y >= C{6} ? C{0} : above;
  }
};

template <class C>
struct Elu {
  static constexpr const char* kName = "elu";
  static constexpr Precision kPrecision = Precision::kFloat32;
  static constexpr auto kReads = DerivativeReads::kInput;
  C alpha = C{1};
  bool operator==(const Elu&) const = default;
  template <class Self = Elu>
  static constexpr auto fields() {
    return std::tuple(field("alpha", &Self::alpha));
  }

  SINTER_HOST_DEVICE C operator()(C x) const {  // exp(x) - 1 = tanh(x / 2) (exp(x) + 1), exact near 0 too
    const C below = alpha * (math::tanh(C(0.5) * x) * (math::exp(x) + C{1}));
    return x > C{0} ? x : below;
  }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const {
    const C below = dy * (alpha * math::exp(x));
    return x <= C{0} ? below : dy;
  }
  Tensor second(const Tensor& x, const Tensor& dy) const;
};

/// With n = e (e + 2), e = exp(x), tanh(softplus(x)) is n / (n + 2). Beyond 20 that is 1 in every dtype.
template <class C>
struct Mish {
  static constexpr const char* kName = "mish";
  static constexpr Precision kPrecision = Precision::kFloat32;
  static constexpr auto kReads = DerivativeReads::kInput;

  SINTER_HOST_DEVICE C operator()(C x) const {
    const C e = math::exp(x < C{20} ? x : C{20}), n = e * (e + C{2});
    return x * (n / (n + C{2}));
  }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const {
    const C capped = x < C{20} ? x : C{20};
    const C e = math::exp(capped), n = e * (e + C{2}), d = C{1} / (n + C{2});
    const C slope = n * d + capped * (C{4} * e * (e + C{1}) * d * d);
    return x != x ? x : dy * slope;
  }
  Tensor second(const Tensor& x, const Tensor& dy) const;
};

using ActivationOps =
    ElementwiseOps<Relu, Sigmoid, Silu, Gelu, Hardsigmoid, Hardswish, Softplus, LeakyRelu, Relu6, Elu, Mish>;

}  // namespace sinter::ops
