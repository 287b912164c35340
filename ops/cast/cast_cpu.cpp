#include <sinter/ops/cast/cast_math.h>
#include <sinter/ops/common/cpu/elementwise_cpu.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

/// One of the two is a 16-bit type, the other its compute type: conversion is all there is to do.
template <class From, class To>
constexpr bool kIsConversion =
    !std::is_same_v<From, To> && std::is_same_v<compute_type<From>, compute_type<To>> &&
    (std::is_same_v<From, float> || std::is_same_v<To, float>);

void run_cast(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  dispatch_all(x.dtype, "cast", [&]<class From> {
    dispatch_all(y.dtype, "cast", [&]<class To> {
      if constexpr (kIsConversion<From, To>) {
        parallel_for(y.numel(), kElementwiseGrain, [&](int64_t begin, int64_t end) {
          convert_block(x.as<const From>() + begin, y.as<To>() + begin, end - begin);
        });
      } else {
        map_elements<From, To>(x, y, [](compute_type<From> value) { return convert_element<To>(value); });
      }
    });
  });
}

}  // namespace

void register_cast_cpu(OpRegistry& registry);
void register_cast_cpu(OpRegistry& registry) {
  registry.add_kernel("cast", {.device = DeviceType::kCpu, .run = run_cast});
}

}  // namespace sinter::ops
