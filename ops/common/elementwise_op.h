// An elementwise op from one functor: its definition, its gradient op and its calls derive from it, as its
// kernels do in cpu/elementwise_op_cpu.h and cuda/elementwise_op_cuda.h. For Sinter's own families of ops and
// for ops outside of its tree alike.
//
//   template <class C>  // the compute type
//   struct LeakyRelu {
//     static constexpr const char* kName = "leaky_relu";
//     static constexpr auto kReads = DerivativeReads::kInput;
//     C slope = C(0.01);  // an attribute, with its two lines
//     bool operator==(const LeakyRelu&) const = default;
//     static constexpr auto fields() { return std::tuple(field("slope", &LeakyRelu::slope)); }
//
//     SINTER_HOST_DEVICE C operator()(C x) const { return x > C{0} ? x : slope * x; }
//     SINTER_HOST_DEVICE C derivative(C x, C dy) const { return x > C{0} ? dy : slope * dy; }
//   };
//
// LeakyRelu<double> stands for a call's attributes, LeakyRelu<C> for what a kernel computes. What else a
// functor may have:
//   static constexpr bool kIntegers = true;           the op takes integers too, which compute as themselves
//   void check(const InferContext&) const;            throws InvalidArgument for attributes that cannot be
//   template <class T> static F from(const F<double>&);   the functor for elements of type T; else each
//   attribute
//                                                     is cast to the compute type
//   static constexpr Role kRole = Role::kRelu;        what it is to rewrites of jobs (core/op/op_def.h)
//   float coarse(float x) const;                      what GPUs compute in operator()'s place for 16-bit
//                                                     types: cheaper, and within 2^-15 of it
//   float coarse_derivative(float x, float dy) const; the same for derivative(), with its arguments
//   static constexpr float kCoarseMost = 1e5f;        beyond it in their first argument they do not hold
//   bool coarse_holds() const;                        whether they do for these attributes
//   F derivative_op() const;                          with kNothing: the op that dy goes through; else the op
//                                                     itself
//   static constexpr bool kPiecewiseLinear = true;    the derivative is constant between corners
//   Tensor second(const Tensor& x, const Tensor& dy) const;  the derivative of derivative(x, dy), or (y, dy),
//   by its
//                                                     first argument, in ops that have gradients themselves.
//                                                     With one of these two the op can be differentiated
//                                                     again
#pragma once

#include <string>
#include <tuple>
#include <type_traits>

#include <sinter/core/op/attributes.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {

/// What a functor's derivative is computed from, beside dy: nothing (a linear op, which has no derivative()),
/// derivative(x, dy), derivative(y, dy) or derivative(x, y, dy). What is not read is freed early.
enum class DerivativeReads { kNothing, kInput, kOutput, kBoth };

/// The functors of a family of ops.
template <template <class> class... F>
struct ElementwiseOps {};

namespace detail {

template <template <class> class F>
inline constexpr bool has_attributes = requires {
  F<double>::fields();
};
template <template <class> class F>
inline constexpr bool takes_integers = requires {
  requires F<double>::kIntegers;
};
template <template <class> class F>
inline constexpr bool has_gradient_op = F<double>::kReads != DerivativeReads::kNothing;
template <template <class> class F>
inline constexpr bool reads_input =
    F<double>::kReads == DerivativeReads::kInput || F<double>::kReads == DerivativeReads::kBoth;
template <template <class> class F>
inline constexpr bool reads_output =
    F<double>::kReads == DerivativeReads::kOutput || F<double>::kReads == DerivativeReads::kBoth;

template <template <class> class F>
inline constexpr bool is_piecewise_linear = requires {
  requires F<double>::kPiecewiseLinear;
};
template <template <class> class F>
inline constexpr bool has_second = reads_input<F> != reads_output<F> &&
                                   (is_piecewise_linear<F> ||
                                    requires(const Tensor& x) { F<double>().second(x, x); });

template <template <class> class F>
std::string gradient_name() {
  return std::string(F<double>::kName) + "_grad";
}

template <template <class> class F>
Attributes attributes_for([[maybe_unused]] const F<double>& op) {
  if constexpr (has_attributes<F>) {
    return op;
  } else {
    return {};
  }
}

/// The op of a call, which any context describes.
template <template <class> class F, class Context>
F<double> op_of([[maybe_unused]] const Context& context) {
  if constexpr (has_attributes<F>) {
    return context.template attributes<F<double>>();
  } else {
    return {};
  }
}

/// The functor that computes `op` for elements of type T.
template <class T, template <class> class F>
F<compute_type<T>> functor_for([[maybe_unused]] const F<double>& op) {
  using Functor = F<compute_type<T>>;
  if constexpr (requires { Functor::template from<T>(op); }) {
    return Functor::template from<T>(op);
  } else if constexpr (has_attributes<F>) {
    Functor functor;
    const auto cast = [&](const auto& to, const auto& from) {
      functor.*to.member =
          static_cast<std::remove_reference_t<decltype(functor.*to.member)>>(op.*from.member);
    };
    std::apply(
        [&](auto... to) { std::apply([&](auto... from) { (cast(to, from), ...); }, F<double>::fields()); },
        Functor::fields());
    return functor;
  } else {
    return {};
  }
}

template <template <class> class F>
void check_attributes(const InferContext& context) {
  if constexpr (requires { F<double>().check(context); }) op_of<F>(context).check(context);
}

template <template <class> class F>
std::vector<TensorSpec> infer_elementwise(const InferContext& context) {
  if constexpr (takes_integers<F>) {
    context.expect_number(0);
  } else {
    context.expect_float(0);
  }
  check_attributes<F>(context);
  return {context.input(0)};
}

template <template <class> class F>
std::vector<TensorSpec> infer_elementwise_grad(const InferContext& context) {
  context.expect_float(0);
  for (size_t i = 1; i < context.input_count(); ++i) {
    context.expect_same_dtype(i, 0);
    context.expect_shape(i, context.shape(0));
  }
  check_attributes<F>(context);
  return {context.input(0)};
}

}  // namespace detail

/// Calls the op on x: `call_elementwise(Clip<double>{-1.0, 1.0}, x)`.
template <template <class> class F>
Tensor call_elementwise(const F<double>& op, const Tensor& x) {
  static const Op& found = builtin(F<double>::kName);
  return call_single(found, {x}, detail::attributes_for(op));
}

/// Calls its gradient op with what the derivative reads, and dy.
template <template <class> class F>
Tensor call_elementwise_grad(const F<double>& op, std::initializer_list<Tensor> inputs) {
  static const Op& found = builtin(detail::gradient_name<F>());
  return call_single(found, inputs, detail::attributes_for(op));
}

namespace detail {

template <template <class> class F>
std::vector<Tensor> elementwise_gradient(const GradientContext& context) {
  constexpr DerivativeReads reads = F<double>::kReads;
  const F<double> op = op_of<F>(context);
  if constexpr (reads == DerivativeReads::kInput) {
    return {call_elementwise_grad(op, {context.input(0), context.grad()})};
  } else if constexpr (reads == DerivativeReads::kOutput) {
    return {call_elementwise_grad(op, {context.output(0), context.grad()})};
  } else if constexpr (reads == DerivativeReads::kBoth) {
    return {call_elementwise_grad(op, {context.input(0), context.output(0), context.grad()})};
  } else if constexpr (requires { op.derivative_op(); }) {
    return {call_elementwise(op.derivative_op(), context.grad())};
  } else {
    return {call_elementwise(op, context.grad())};
  }
}

/// Of the gradient op. It is linear in dy, whose gradient goes through the op itself.
template <template <class> class F>
std::vector<Tensor> second_gradient(const GradientContext& context) {
  const F<double> op = op_of<F>(context);
  const Tensor read = context.input(0), ddx = context.grad();
  std::vector<Tensor> gradients(2);
  if constexpr (!is_piecewise_linear<F>) {
    static const Op& mul = builtin("mul");
    if (context.needs(0)) gradients[0] = op.second(read, call_single(mul, {context.input(1), ddx}));
  }
  if (context.needs(1)) gradients[1] = call_elementwise_grad(op, {read, ddx});
  return gradients;
}

/// Whatever the order of axes, in place, and in 16 bit if its input comes so.
template <template <class> class F>
OpTraits elementwise_traits() {
  OpTraits traits{
      .elementwise = true, .precision = Precision::kFollow, .layout = {.kind = LayoutRule::Kind::kAnyOrder}};
  if constexpr (requires { F<double>::kPrecision; }) traits.precision = F<double>::kPrecision;
  if constexpr (requires { F<double>::kRole; }) traits.role = F<double>::kRole;
  return traits;
}

}  // namespace detail

/// Registers the op F, and the op `<name>_grad` that computes its gradient in one kernel.
template <template <class> class F>
void add_elementwise_op(OpRegistry& registry) {
  registry.add({.name = F<double>::kName,
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = detail::infer_elementwise<F>,
                .gradient = detail::elementwise_gradient<F>,
                .gradient_reads = {.inputs = detail::reads_input<F> ? reads_of({0}) : 0,
                                   .outputs = detail::reads_output<F> ? reads_of({0}) : 0},
                .traits = detail::elementwise_traits<F>()});
  if constexpr (detail::has_gradient_op<F>) {
    std::vector<InputDef> inputs;
    if (detail::reads_input<F>) inputs.push_back({"x"});
    if (detail::reads_output<F>) inputs.push_back({"y"});
    inputs.push_back({"dy"});
    OpDef::Gradient gradient = nullptr;
    if constexpr (detail::has_second<F>) gradient = detail::second_gradient<F>;
    registry.add({.name = detail::gradient_name<F>(),
                  .inputs = std::move(inputs),
                  .outputs = {{"dx"}},
                  .infer = detail::infer_elementwise_grad<F>,
                  .gradient = gradient,
                  .gradient_reads = {.inputs = reads_of({0, 1})},
                  .traits = {.elementwise = true}});
  }
}

template <template <class> class... F>
void add_elementwise_ops(OpRegistry& registry, ElementwiseOps<F...>) {
  (add_elementwise_op<F>(registry), ...);
}

/// For kernels of F: calls `function.operator()<T>(functor)` with the element type of input 0 and the functor
/// in its compute type.
template <template <class> class F, class Function>
void dispatch_elementwise(const KernelContext& context, Function&& function) {
  const F<double> op = detail::op_of<F>(context);
  const auto run = [&]<class T> { function.template operator()<T>(detail::functor_for<T>(op)); };
  if constexpr (detail::takes_integers<F>) {
    dispatch_number(context.input(0).dtype, F<double>::kName, run);
  } else {
    dispatch_float(context.input(0).dtype, F<double>::kName, run);
  }
}

/// For kernels of F's gradient op, likewise.
template <template <class> class F, class Function>
void dispatch_elementwise_grad(const KernelContext& context, Function&& function) {
  const F<double> op = detail::op_of<F>(context);
  dispatch_float(context.input(0).dtype, F<double>::kName,
                 [&]<class T> { function.template operator()<T>(detail::functor_for<T>(op)); });
}

}  // namespace sinter::ops
