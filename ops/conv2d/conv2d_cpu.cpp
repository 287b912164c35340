// Registers the CPU's convolution kernels.
#include <algorithm>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/activation/activation_math.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/conv2d/conv2d_kernels_cpu.h>
#include <sinter/ops/prelu/prelu_dispatch.h>
#include <sinter/ops/prelu/prelu_math.h>

namespace sinter::ops {
namespace {

/// What follows a convolution in the same call.
enum class Tail { kNone, kSums, kAct };

/// The geometry of a call of the op that computes `pass`; Call is KernelQuery or KernelContext.
template <Conv2dPass pass, Tail tail, class Call>
Conv2dGeometry geometry_of(const Call& call) {
  if constexpr (tail == Tail::kAct) {
    const auto& options = call.template attributes<Conv2dActOptions>();
    return conv2d_geometry("conv2d_bias_act", call.input(0).shape, call.input(1).shape, options);
  } else if constexpr (pass == Conv2dPass::kForward) {
    const auto& options = call.template attributes<Conv2dAttributes>();
    return conv2d_geometry("conv2d", call.input(0).shape, call.input(1).shape, options);
  } else if constexpr (pass == Conv2dPass::kGradInput) {
    const auto& options = call.template attributes<Conv2dGradInputAttributes>();
    return conv2d_geometry("conv2d_grad_input", call.output(0).shape, call.input(1).shape, options);
  } else {
    const auto& options = call.template attributes<Conv2dGradWeightAttributes>();
    return conv2d_geometry("conv2d_grad_weight", call.input(0).shape, call.output(0).shape, options);
  }
}

/// Sums up what conv2d_sums has computed.
void sum_channels(const KernelContext& context, const Conv2dGeometry& geometry) {
  const bool channels_last = geometry.layout == Layout::kNHWC;
  const int64_t inner = channels_last ? 1 : geometry.out_pixels(), channels = geometry.out_channels;
  dispatch_float(context.output(0).dtype, "conv2d_sums", [&]<class T> {
    using C = compute_type<T>;
    const T* const y = context.output(0).as<const T>();
    C* const sums = context.output(1).as<C>();
    parallel_for(channels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        double sum = 0.0, squares = 0.0;
        for (int64_t i = c * inner; i < context.output(0).numel(); i += channels * inner) {
          for (int64_t j = i; j < i + inner; ++j) {
            const auto value = static_cast<double>(static_cast<C>(y[j]));
            sum += value;
            squares += value * value;
          }
        }
        sums[c] = static_cast<C>(sum);
        sums[channels + c] = static_cast<C>(squares);
      }
    });
  });
}

template <class T, class S>
struct TailArrays {
  const T* addend;  // may be null
  int64_t addends;  // y's elements, or one image's
  const S* slope;   // of PReLU
};

/// y <- activation(y + addend) for `count` elements from `first` on, of one channel each if slopes are
/// `slope_step` = 1 apart.
template <class T, class S>
void finish_run(fused::Activation activation, const TailArrays<T, S>& arrays, int64_t first, int64_t count,
                int64_t channel, int64_t slope_step, T* y) {
  using C = compute_type<T>;
  T* const run = y + first;
  const T* const addend = arrays.addend == nullptr ? nullptr : arrays.addend + first % arrays.addends;
  const auto each = [&](auto function) {
    if (addend != nullptr) {
      for (int64_t i = 0; i < count; ++i)
        run[i] = static_cast<T>(function(static_cast<C>(run[i]) + static_cast<C>(addend[i]), i));
    } else {
      for (int64_t i = 0; i < count; ++i) run[i] = static_cast<T>(function(static_cast<C>(run[i]), i));
    }
  };
  switch (activation) {
    case fused::Activation::kNone:
      return each([](C value, int64_t) { return value; });
    case fused::Activation::kRelu:
      return each([](C value, int64_t) { return Relu<C>()(value); });
    case fused::Activation::kPRelu:
      const S* const slope = arrays.slope + channel;
      return each(
          [&](C value, int64_t i) { return prelu_value(value, static_cast<C>(slope[i * slope_step])); });
  }
}

/// What conv2d_bias_act does behind the convolution and its bias.
void finish(const KernelContext& context, const Conv2dGeometry& geometry) {
  const fused::Activation activation = context.attributes<Conv2dActOptions>().activation;
  const bool has_addend = context.has_input(3), has_slope = context.has_input(4);
  if (!has_addend && activation == fused::Activation::kNone) return;
  const bool channels_last = geometry.layout == Layout::kNHWC;
  const int64_t channels = geometry.out_channels;
  const int64_t length = channels_last ? channels : geometry.out_pixels();
  if (length == 0) return;
  const DType dtype = context.output(0).dtype;
  dispatch_prelu(dtype, has_slope ? context.input(4).dtype : dtype, "conv2d_bias_act", [&]<class T, class S> {
    const TailArrays<T, S> arrays{has_addend ? context.input(3).as<const T>() : nullptr,
                                  has_addend ? context.input(3).numel() : 0,
                                  has_slope ? context.input(4).as<const S>() : nullptr};
    T* const y = context.output(0).as<T>();
    const int64_t runs = context.output(0).numel() / length;
    parallel_for(runs, std::max<int64_t>(1, 16384 / length), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        finish_run(activation, arrays, r * length, length, channels_last ? 0 : r % channels,
                   channels_last ? 1 : 0, y);
    });
  });
}

template <Conv2dPass pass, Tail tail>
void run_tail(const KernelContext& context) {
  if constexpr (tail == Tail::kSums) sum_channels(context, geometry_of<pass, tail>(context));
  if constexpr (tail == Tail::kAct) finish(context, geometry_of<pass, tail>(context));
}

template <Conv2dPass pass, Tail tail = Tail::kNone>
void add_kernels(OpRegistry& registry, const char* op) {
  registry.add_kernel(
      op, {.device = DeviceType::kCpu,
           .name = "im2col",
           .can_run = [](const KernelQuery& query) { return conv2d_im2col_can_run(query.input(0).dtype); },
           .workspace_bytes =
               [](const KernelQuery& query) {
                 return conv2d_im2col_workspace(geometry_of<pass, tail>(query), pass, query.input(0).dtype,
                                                query.threads());
               },
           .run =
               [](const KernelContext& context) {
                 run_conv2d_im2col(context, geometry_of<pass, tail>(context), pass);
                 run_tail<pass, tail>(context);
               }});
  registry.add_kernel(
      op,
      {.device = DeviceType::kCpu,
       .name = "direct",
       .can_run =
           [](const KernelQuery& query) { return conv2d_direct_can_run(geometry_of<pass, tail>(query)); },
       .microseconds =
           [](const KernelQuery& query, const Prepared*) {
             return best_if(conv2d_direct_pays(geometry_of<pass, tail>(query), pass, query.input(0).dtype));
           },
       .workspace_bytes =
           [](const KernelQuery& query) {
             return conv2d_direct_workspace(geometry_of<pass, tail>(query), pass, query.input(0).dtype,
                                            query.threads());
           },
       .run =
           [](const KernelContext& context) {
             run_conv2d_direct(context, geometry_of<pass, tail>(context), pass);
             run_tail<pass, tail>(context);
           }});
  registry.add_kernel(
      op,
      {.device = DeviceType::kCpu,
       .name = "winograd",
       .can_run =
           [](const KernelQuery& query) { return conv2d_winograd_can_run(geometry_of<pass, tail>(query)); },
       .microseconds =
           [](const KernelQuery& query, const Prepared*) {
             return best_if(conv2d_winograd_pays(geometry_of<pass, tail>(query), pass, query.input(0).dtype));
           },
       .workspace_bytes =
           [](const KernelQuery& query) {
             return conv2d_winograd_workspace(geometry_of<pass, tail>(query), pass, query.input(0).dtype,
                                              query.threads());
           },
       .run =
           [](const KernelContext& context) {
             run_conv2d_winograd(context, geometry_of<pass, tail>(context), pass);
             run_tail<pass, tail>(context);
           }});
  registry.add_kernel(
      op, {.device = DeviceType::kCpu,
           .name = "onednn",
           .can_run =
               [](const KernelQuery& query) {
                 return conv2d_onednn_can_run(geometry_of<pass, tail>(query), pass, query.input(0).dtype);
               },
           .microseconds = [](const KernelQuery&, const Prepared*) { return best_if(true); },
           .prepare =
               [](const KernelQuery& query) {
                 const bool has_bias = pass == Conv2dPass::kForward && query.has_input(2);
                 return prepare_conv2d_onednn(geometry_of<pass, tail>(query), pass, query.input(0).dtype,
                                              has_bias, query.threads());
               },
           .run =
               [](const KernelContext& context) {
                 run_conv2d_onednn(context);
                 run_tail<pass, tail>(context);
               }});
}

}  // namespace

void register_conv2d_cpu(OpRegistry& registry);
void register_conv2d_cpu(OpRegistry& registry) {
  add_kernels<Conv2dPass::kForward>(registry, "conv2d");
  add_kernels<Conv2dPass::kForward, Tail::kSums>(registry, "conv2d_sums");
  add_kernels<Conv2dPass::kForward, Tail::kAct>(registry, "conv2d_bias_act");
  add_kernels<Conv2dPass::kGradInput>(registry, "conv2d_grad_input");
  add_kernels<Conv2dPass::kGradWeight>(registry, "conv2d_grad_weight");
}

}  // namespace sinter::ops
