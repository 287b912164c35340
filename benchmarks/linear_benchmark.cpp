// Linear layers of a few rows or outputs, and the gradients of weight and bias, in one call and in two.
#include <sinter/core/op/node.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/reduce/reduce.h>

#include "common/gpu_bench.h"

using namespace sinter;

namespace {

struct Problem {
  int64_t rows, in, out;
};

constexpr Problem kForward[] = {{1, 512, 10},    {1, 2048, 1000},  {2, 2048, 1000}, {4, 512, 1000},
                                {8, 2048, 1000}, {1, 4096, 4096},  {1000, 512, 1},  {1000, 2048, 2},
                                {16384, 64, 1},  {256, 2048, 1000}};
constexpr Problem kGradients[] = {{16, 512, 1000},    {256, 512, 1000},  {256, 2048, 1000},
                                  {512, 512, 10},     {128, 25088, 512}, {4096, 64, 64},
                                  {4096, 1024, 1024}, {12544, 512, 512}, {32768, 512, 512}};

void add(bench::Report& report, const char* what, const Problem& p, DType dtype,
         const std::function<void()>& call) {
  const std::string name = fmt::format("{} ({},{}) to {}", what, p.rows, p.in, p.out), type(to_string(dtype));
  if (!report.wants("linear", name, type)) return;
  report.add({.suite = "linear", .name = name, .dtype = type, .us = bench::time_cold(call)});
}

void run(bench::Report& report) {
  const NoGrad no_grad;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const Problem& p : kForward) {
      const Tensor x = bench::normal_tensor({p.rows, p.in}, dtype, 1);
      const Tensor weight = bench::normal_tensor({p.out, p.in}, dtype, 2);
      const Tensor bias = bench::normal_tensor({p.out}, dtype, 3);
      add(report, "forward", p, dtype, [&] { ops::linear(x, weight, bias); });
    }
    for (const Problem& p : kGradients) {
      if (report.quick() && p.rows > 1000) continue;
      const Tensor dy = bench::normal_tensor({p.rows, p.out}, dtype, 1);
      const Tensor x = bench::normal_tensor({p.rows, p.in}, dtype, 2);
      add(report, "grad_weight_bias", p, dtype, [&] { ops::vjp::linear_weight_bias(dy, x); });
      add(report, "grad_weight, sum", p, dtype, [&] {
        ops::vjp::linear_weight(dy, x);
        ops::sum_to(dy, {p.out});
      });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(argc, argv, run);
}
