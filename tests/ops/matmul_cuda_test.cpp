// What the random samples leave out: products of the sizes of real networks, views that are not aligned, many
// matrices, matrix-vector products whose rows are split, and TF32. Each is compared with the CPU and needs a
// GPU.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include <sinter/core/runtime/settings.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/matmul/matmul.h>

#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;

class MatmulCuda : public GpuTest {};

void expect_close(const Tensor& value, const Tensor& expected, double tolerance) {
  ASSERT_TRUE(value.device().is_cuda());
  ASSERT_EQ(value.shape(), expected.shape());
  const std::vector<double> got = as_double(value).to_vector<double>(), want = expected.to_vector<double>();
  double largest = 0;
  for (const double v : want) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::abs(got[i] - want[i]), tolerance * (1.0 + largest)) << "element " << i;
  }
}

void check_matmul(SampleMaker& maker, const Shape& a_shape, const Shape& b_shape,
                  const MatmulOptions& options, int64_t offset, double tolerance) {
  SCOPED_TRACE(
      fmt::format("{} x {} {} {} offset {}", a_shape, b_shape, to_string(options), maker.dtype(), offset));
  const Tensor a = maker.tensor(a_shape, -1, 1), b = maker.tensor(b_shape, -1, 1);
  expect_close(matmul(on_gpu(a, offset), on_gpu(b, offset), options),
               matmul(as_double(a), as_double(b), options), tolerance);
}

TEST_F(MatmulCuda, AgreesWithTheCpuForEveryTransposeAndAlignment) {
  for (const DType dtype : kDTypes) {
    SampleMaker maker(5, dtype);
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        for (const int64_t offset : {0, 1}) {
          const auto check = [&](int64_t m, int64_t n, int64_t k) {
            check_matmul(maker, transpose_a ? Shape{k, m} : Shape{m, k},
                         transpose_b ? Shape{n, k} : Shape{k, n}, {transpose_a, transpose_b}, offset,
                         default_tolerance(dtype));
          };
          check(128, 256, 512);
          check(33, 17, 129);
          check(1, 1000, 64);
          check(512, 1, 2048);
        }
      }
    }
  }
}

TEST_F(MatmulCuda, AgreesWithTheCpuForBatches) {
  for (const DType dtype : kDTypes) {
    SampleMaker maker(6, dtype);
    const double tolerance = default_tolerance(dtype);
    check_matmul(maker, {70, 5, 7}, {70, 7, 3}, {}, 0, tolerance);
    check_matmul(maker, {4, 3, 16, 24}, {24, 8}, {}, 0, tolerance);
    check_matmul(maker, {16, 24}, {4, 3, 24, 8}, {}, 0, tolerance);
    check_matmul(maker, {4, 1, 16, 24}, {3, 24, 8}, {}, 0, tolerance);
    check_matmul(maker, {4, 3, 24, 16}, {24, 8}, {.transpose_a = true}, 0, tolerance);
    check_matmul(maker, {70000, 2, 3}, {70000, 3, 2}, {}, 0, tolerance);
  }
}

TEST_F(MatmulCuda, LinearAddsItsBiasWhateverItsAlignment) {
  for (const DType dtype : kDTypes) {
    SampleMaker maker(7, dtype);
    for (const int64_t out : {1, 7, 64, 1000}) {
      for (const int64_t offset : {0, 1}) {
        SCOPED_TRACE(fmt::format("{} out {} offset {}", dtype, out, offset));
        const Tensor x = maker.tensor({6, 5, 48}, -1, 1), weight = maker.tensor({out, 48}, -1, 1);
        const Tensor bias = maker.tensor({out}, -9, 9);
        expect_close(linear(on_gpu(x), on_gpu(weight), on_gpu(bias, offset)),
                     linear(as_double(x), as_double(weight), as_double(bias)), default_tolerance(dtype));
      }
    }
  }
}

TEST_F(MatmulCuda, LinearWithAThinSideAddsItsBias) {
  for (const DType dtype : kDTypes) {
    SampleMaker maker(12, dtype);
    for (const int64_t thin : {1, 2, 3, 8}) {
      for (const int64_t thick : {1, 5, 300}) {
        for (const int64_t in : {0, 1, 7, 16, 100, 9000}) {
          for (const bool few_rows : {false, true}) {
            const int64_t rows = few_rows ? thin : thick, out = few_rows ? thick : thin, offset = in % 2;
            SCOPED_TRACE(fmt::format("{} rows {} in {} out {} offset {}", dtype, rows, in, out, offset));
            const Tensor x = maker.tensor({rows, in}, -1, 1), weight = maker.tensor({out, in}, -1, 1),
                         bias = maker.tensor({out}, -9, 9);
            const Tensor x_gpu = on_gpu(x, offset), weight_gpu = on_gpu(weight, offset);
            expect_close(linear(x_gpu, weight_gpu, on_gpu(bias, offset)),
                         linear(as_double(x), as_double(weight), as_double(bias)), default_tolerance(dtype));
            expect_close(linear(x_gpu, weight_gpu), linear(as_double(x), as_double(weight)),
                         default_tolerance(dtype));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(MatmulCuda, GradientsOfLinearAgreeWithTheCpuWhateverTheirAlignment) {
  const int64_t shapes[][3] = {{1, 1, 1},      {7, 5, 3},       {64, 32, 16},
                               {512, 256, 10}, {300, 48, 1000}, {4096, 64, 128}};
  for (const DType dtype : kDTypes) {
    SampleMaker maker(10, dtype);
    for (const auto& [rows, in, out] : shapes) {
      for (const int64_t offset : {0, 1}) {
        SCOPED_TRACE(fmt::format("{} rows {} in {} out {} offset {}", dtype, rows, in, out, offset));
        const Tensor dy = maker.tensor({rows, out}, -1, 1), x = maker.tensor({rows, in}, -1, 1);
        const Tensor dy_gpu = on_gpu(dy, offset), x_gpu = on_gpu(x, offset);
        const LinearGradients got = vjp::linear_weight_bias(dy_gpu, x_gpu);
        const LinearGradients want = vjp::linear_weight_bias(as_double(dy), as_double(x));
        expect_close(got.weight, want.weight, default_tolerance(dtype));
        expect_close(got.bias, want.bias, default_tolerance(dtype));
        const LinearGradients again = vjp::linear_weight_bias(dy_gpu, x_gpu);
        EXPECT_EQ(as_double(again.weight).to_vector<double>(), as_double(got.weight).to_vector<double>());
        EXPECT_EQ(as_double(again.bias).to_vector<double>(), as_double(got.bias).to_vector<double>());
      }
    }
  }
}

TEST_F(MatmulCuda, PlansThatWereLetGoAreMadeAgain) {
  const size_t limit = settings::plan_limit();
  settings::set_plan_limit(2);
  SampleMaker maker(11, DType::kFloat32);
  for (int round = 0; round < 3; ++round) {
    for (const int64_t rows : {16, 32, 48, 64}) {
      check_matmul(maker, {rows, 24}, {24, 40}, {}, 0, default_tolerance(DType::kFloat32));
    }
  }
  settings::set_plan_limit(limit);
}

TEST_F(MatmulCuda, Tf32IsUsedOnlyWhenAllowed) {
  SampleMaker maker(8, DType::kFloat32);
  const bool before = settings::allow_tf32();
  settings::set_allow_tf32(false);
  check_matmul(maker, {256, 512}, {512, 256}, {}, 0, default_tolerance(DType::kFloat32));
  settings::set_allow_tf32(true);
  check_matmul(maker, {256, 512}, {512, 256}, {}, 0, 2e-3);
  settings::set_allow_tf32(before);
}

TEST_F(MatmulCuda, MatvecAgreesWithTheCpu) {
  const Shape shapes[] = {{1, 1}, {7, 130}, {1000, 33}, {5000, 16}, {3, 4096}, {40, 300, 20}, {2, 3, 70, 5}};
  for (const DType dtype : kDTypes) {
    SampleMaker maker(9, dtype);
    for (const Shape& shape : shapes) {
      for (const bool transpose : {false, true}) {
        for (const int64_t offset : {0, 1}) {
          SCOPED_TRACE(fmt::format("{} {} transpose {} offset {}", shape, dtype, transpose, offset));
          const int64_t in = shape[transpose ? -2 : -1];
          const Tensor a = maker.tensor(shape, -1, 1);
          for (const Shape& x_shape :
               {Shape{in}, shape.without(shape.rank() - 1).with(shape.rank() - 2, in)}) {
            const Tensor x = maker.tensor(x_shape, -1, 1);
            expect_close(matvec(on_gpu(a, offset), on_gpu(x, offset), {.transpose_a = transpose}),
                         matvec(as_double(a), as_double(x), {.transpose_a = transpose}),
                         default_tolerance(dtype));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace sinter::ops
