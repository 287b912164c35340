// Permutations: the article's shapes, changes of layout, attention, odd sizes, thin sides and general orders.
// The least that any of them moves is its tensor once each way, so a copy of it is the ceiling.
#include <fmt/format.h>

#include <sinter/core/op/node.h>
#include <sinter/ops/permute/permute.h>

#include "common/gpu_bench.h"

using namespace sinter;

namespace {

struct Case {
  Shape shape;
  std::vector<int64_t> axes;
  DType dtype = DType::kFloat32;
  double target = 0.85;
  std::string layout = {};
};

std::string name_of(const Case& c) {
  const auto extents = c.shape.extents();
  return fmt::format("({}) -> ({})", fmt::join(extents, ","), fmt::join(c.axes, ","));
}

/// (0,2,1) and (1,0,2) with last axis 512 at 16 to 128 MiB.
void add_table(std::vector<Case>& cases) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (int64_t mib = 16; mib <= 128; mib *= 2) {
      const Shape shape{64, (mib << 20) / (64 * 512 * static_cast<int64_t>(size_of(dtype))), 512};
      cases.push_back({shape, {1, 0, 2}, dtype, 0.95});
      cases.push_back({shape, {0, 2, 1}, dtype, 0.95});
    }
  }
}

std::vector<Case> all_cases() {
  using enum DType;
  std::vector<Case> cases;
  add_table(cases);
  const std::vector<int64_t> to_nhwc = {0, 2, 3, 1}, to_nchw = {0, 3, 1, 2};
  const std::vector<Case> others = {
      {{128, 197, 12, 64}, {0, 2, 1, 3}, kFloat16},
      {{128, 12, 197, 64}, {0, 2, 1, 3}, kFloat16},
      {{256, 64, 56, 56}, to_nhwc, kFloat16, 0.85, "NCHW to NHWC"},
      {{256, 56, 56, 64}, to_nchw, kFloat16, 0.85, "NHWC to NCHW"},
      {{256, 64, 56, 56}, to_nhwc, kFloat32, 0.85, "NCHW to NHWC"},
      {{256, 512, 7, 7}, to_nhwc, kFloat16, 0.85, "NCHW to NHWC"},
      {{256, 7, 7, 512}, to_nchw, kFloat16, 0.85, "NHWC to NCHW"},
      {{256, 3, 224, 224}, to_nhwc, kFloat32, 0.85, "NCHW to NHWC"},
      {{256, 224, 224, 3}, to_nchw, kFloat32, 0.85, "NHWC to NCHW"},
      {{256, 3, 224, 224}, to_nhwc, kFloat16, 0.85, "NCHW to NHWC"},
      {{256, 224, 224, 3}, to_nchw, kFloat16, 0.85, "NHWC to NCHW"},
      {{256, 224, 224, 3}, to_nchw, kUInt8, 0.85, "NHWC to NCHW"},
      {{64, 255, 257}, {0, 2, 1}, kFloat32},
      {{64, 511, 257}, {0, 2, 1}, kFloat16},
      {{64, 511, 513}, {0, 2, 1}, kUInt8},
      {{64, 255, 257}, {0, 2, 1}, kFloat64},
      {{4097, 4099}, {1, 0}, kFloat32},
      {{4097, 8191}, {1, 0}, kFloat16},
      {{8192, 8192}, {1, 0}, kFloat32},
      {{8192, 8192}, {1, 0}, kFloat16},
      {{8, 31, 17, 129}, {3, 1, 0, 2}, kFloat16},
      {{64, 31, 17, 513}, {3, 1, 0, 2}, kFloat16},
      {{64, 32, 16, 512}, {3, 1, 0, 2}, kFloat16},
      {{32, 48, 64, 96}, {3, 2, 1, 0}, kFloat32},
      {{65536, 16, 16}, {0, 2, 1}, kFloat32},
      {{1 << 20, 3, 5}, {0, 2, 1}, kFloat32},
      {{1 << 20, 4}, {1, 0}, kFloat32},
      {{8, 1 << 20}, {1, 0}, kFloat32},
      {{16, 1 << 20}, {1, 0}, kFloat16},
      {{512, 1024, 33}, {1, 0, 2}, kFloat32},
      {{512, 1024, 33}, {1, 0, 2}, kFloat16},
  };
  cases.insert(cases.end(), others.begin(), others.end());
  return cases;
}

void run(bench::Report& report) {
  const NoGrad no_grad;
  for (const Case& c : all_cases()) {
    const std::string name = name_of(c), dtype = fmt::format("{}", c.dtype);
    if (!report.wants("permute", name, dtype, c.layout)) continue;
    const Tensor x = bench::normal_tensor(c.shape, c.dtype);
    Tensor y;
    const double us = bench::time_cold([&] { y = ops::permute(x, c.axes); });
    report.add({.suite = "permute",
                .name = name,
                .dtype = dtype,
                .layout = c.layout,
                .us = us,
                .minimum_bytes = 2.0 * static_cast<double>(x.spec().bytes()),
                .target_share = c.target});
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(argc, argv, run);
}
