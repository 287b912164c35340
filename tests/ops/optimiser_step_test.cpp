// Five steps of SGD and AdamW against loops in double precision written from the papers' formulas and against
// PyTorch's values, and the errors of both.
#include <cmath>

#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/grad_norm/grad_norm.h>
#include <sinter/ops/optimizer/optimizer.h>

#include "ops/ops_test_support.h"

namespace sinter::ops {
namespace {

using testing::counting;
using testing::message_of;
using Doubles = std::vector<double>;

const Doubles kStart = {1.0, -2.0, 0.5};

/// The gradient of a bowl that moves: it depends on the weights, so that an early error grows.
Doubles gradient_at(const Doubles& weights, int step) {
  return {0.1 * (step + 1) + 0.5 * weights[0], -0.3 + 0.5 * weights[1], 0.2 * step + 0.5 * weights[2]};
}

template <class Step>
Doubles run_five(Step step) {
  const NoGrad no_grad;
  const Tensor weights = Tensor::from_values(kStart, {3}).set_requires_grad(true);
  for (int i = 0; i < 5; ++i)
    step(weights, Tensor::from_values(gradient_at(weights.to_vector<double>(), i), {3}), i);
  return weights.to_vector<double>();
}

Doubles run_sgd(const update::SGDStep& options, double rate) {
  const Tensor buffer = options.momentum != 0 ? Tensor::full({3}, NAN, DType::kFloat64) : Tensor();
  return run_five([&](const Tensor& weights, const Tensor& gradient, int i) {
    const UpdateSlot slot{weights, gradient, {buffer}, Tensor::scalar(int64_t{i + 1})};
    update::sgd_step({&slot, 1}, Tensor::scalar(rate), options);
  });
}

Doubles run_adamw(const update::AdamWStep& options, double rate) {
  const Tensor mean = Tensor::zeros({3}, DType::kFloat64), square = Tensor::zeros({3}, DType::kFloat64);
  return run_five([&](const Tensor& weights, const Tensor& gradient, int i) {
    const UpdateSlot slot{weights, gradient, {mean, square}, Tensor::scalar(int64_t{i + 1})};
    update::adamw_step({&slot, 1}, Tensor::scalar(rate), options);
  });
}

Doubles sgd_by_hand(const update::SGDStep& options, double rate) {
  Doubles weights = kStart, buffer(3);
  for (int step = 0; step < 5; ++step) {
    const Doubles gradient = gradient_at(weights, step);
    for (size_t i = 0; i < 3; ++i) {
      double g = gradient[i] + options.weight_decay * weights[i];
      if (options.momentum != 0) {
        buffer[i] = step == 0 ? g : options.momentum * buffer[i] + (1 - options.dampening) * g;
        g = options.nesterov ? g + options.momentum * buffer[i] : buffer[i];
      }
      weights[i] -= rate * g;
    }
  }
  return weights;
}

Doubles adamw_by_hand(const update::AdamWStep& options, double rate) {
  Doubles weights = kStart, mean(3), square(3);
  for (int step = 1; step <= 5; ++step) {
    const Doubles gradient = gradient_at(weights, step - 1);
    for (size_t i = 0; i < 3; ++i) {
      const double g = gradient[i] + (options.decoupled ? 0.0 : options.weight_decay * weights[i]);
      if (options.decoupled) weights[i] *= 1 - rate * options.weight_decay;
      mean[i] = options.beta1 * mean[i] + (1 - options.beta1) * g;
      square[i] = options.beta2 * square[i] + (1 - options.beta2) * g * g;
      const double corrected = square[i] / (1 - std::pow(options.beta2, step));
      weights[i] -=
          rate * mean[i] / (1 - std::pow(options.beta1, step)) / (std::sqrt(corrected) + options.epsilon);
    }
  }
  return weights;
}

void expect_near(const Doubles& got, const Doubles& expected, double tolerance = 1e-13) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << "element " << i;
}

TEST(SgdStepTest, FiveStepsAgreeWithPyTorchAndTheFormulas) {
  struct Case {
    update::SGDStep options;
    Doubles pytorch;
  };
  const Case cases[] = {
      {{}, {0.6334133750000001, -1.4118304375000001, 0.19664296874999995}},
      {{.weight_decay = 0.05}, {0.614187640834375, -1.3728801814124998, 0.18751657742031244}},
      {{.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.05},
       {0.2623484895138333, -0.6798015040791411, -0.008729122173133057}},
      {{.momentum = 0.9, .weight_decay = 0.05, .nesterov = true},
       {-0.11051145022023037, -0.12462372896577316, -0.3479795591475446}}};
  for (const Case& each : cases) {
    SCOPED_TRACE(to_string(Attributes(each.options)));
    const Doubles got = run_sgd(each.options, 0.1);
    expect_near(got, each.pytorch);
    expect_near(got, sgd_by_hand(each.options, 0.1));
  }
}

TEST(AdamWStepTest, FiveStepsAgreeWithPyTorchAndTheFormulas) {
  struct Case {
    update::AdamWStep options;
    Doubles pytorch;
  };
  const Case cases[] = {
      {{.weight_decay = 0.05}, {0.47821755051341885, -1.4578337106815509, -0.0009747049362908017}},
      {{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.05, .decoupled = false},
       {0.4971813557932246, -1.5036694451938755, -0.001632150863670287}}};
  for (const Case& each : cases) {
    SCOPED_TRACE(to_string(Attributes(each.options)));
    const Doubles got = run_adamw(each.options, 0.1);
    expect_near(got, each.pytorch);
    expect_near(got, adamw_by_hand(each.options, 0.1));
  }
}

/// More slots than a launch on a GPU takes, of every kind, from none to several blocks of elements.
void expect_many_slots_updated(Device device) {
  std::vector<UpdateSlot> slots;
  std::vector<Tensor> gradients;
  double squares = 0.0;
  for (int i = 0; i < 900; ++i) {
    const DType dtype = i % 3 == 1 ? DType::kBFloat16 : DType::kFloat32;
    const DType gradient_dtype = i % 3 == 0 ? DType::kFloat32 : i % 3 == 1 ? dtype : DType::kFloat16;
    const Shape shape = i % 100 == 99 ? Shape{3, 8191 + i} : Shape{i % 7, 1 + i % 50};
    slots.push_back({full(shape, 2.0, dtype, device),
                     full(shape, i % 32, gradient_dtype, device),
                     {},
                     Tensor(),
                     i % 3 == 2 ? full(shape, 0.0, gradient_dtype, device) : Tensor()});
    gradients.push_back(slots.back().gradient);
    squares += static_cast<double>(shape.numel() * (i % 32) * (i % 32));
  }
  EXPECT_DOUBLE_EQ(update::grad_norm(gradients).item(), std::sqrt(squares));
  const uint64_t version = slots[2].parameter.version(), working_version = slots[2].working.version();
  update::sgd_step(slots, Tensor::scalar(0.25, device), {}, Tensor::scalar(0.5f, device));
  EXPECT_EQ(slots[2].parameter.version(), version + 1);
  EXPECT_EQ(slots[2].working.version(), working_version + 1);
  EXPECT_EQ(slots[1].gradient.version(), gradients[1].version());
  for (size_t i = 0; i < slots.size(); ++i) {
    // All of these are exact in each dtype but for bfloat16's, which is rounded once.
    const float exact = 2.0f - 0.125f * static_cast<float>(i % 32);
    const float expected = i % 3 == 1 ? static_cast<float>(bfloat16(exact)) : exact;
    for (const Tensor& result : {slots[i].parameter, slots[i].working}) {
      if (!result.defined()) continue;
      for (const float value : cast(result, DType::kFloat32).to_vector<float>()) {
        ASSERT_EQ(value, expected) << "slot " << i;
      }
    }
  }
}

TEST(SgdStepTest, UpdatesManySlotsOfDifferentDtypesInOneCall) {
  expect_many_slots_updated(Device::cpu());
}
TEST(SgdStepTest, UpdatesManySlotsOfDifferentDtypesInOneCallOnCuda) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  expect_many_slots_updated(Device::cuda());
}

TEST(SgdStepTest, WorkingCopiesMustFit) {
  UpdateSlot slot{counting({2}), counting({2}), {}, Tensor(), Tensor::zeros({2}, DType::kFloat16)};
  const auto message = [&] {
    return message_of([&] { update::sgd_step({&slot, 1}, Tensor::scalar(0.1), {}); });
  };
  EXPECT_EQ(message(),
            "[sgd_step] expected gradient[0] and working[0] of one dtype but got float32 and float16");
  slot.gradient = Tensor::zeros({2}, DType::kFloat16);
  EXPECT_EQ(message(), "no error");
  slot.working = Tensor::zeros({3}, DType::kFloat16);
  EXPECT_EQ(message(), "[sgd_step] expected working[0] of shape (2,) but got (3,)");
  slot.working = Tensor::zeros({2}, DType::kFloat64);
  EXPECT_EQ(message(),
            "[sgd_step] expected a working copy in a 16-bit dtype of a float32 parameter but got float64 of "
            "float32");
  slot.working = Tensor();
  EXPECT_EQ(message(),
            "[sgd_step] expected gradient[0] and parameter[0] of one dtype but got float16 and float32");
  slot.gradient = counting({2});
  EXPECT_EQ(message_of([&] {
              update::sgd_step({&slot, 1}, Tensor::scalar(0.1), {}, Tensor::scalar(1.0));
            }),
            "[sgd_step] expected gradient_factor[0] of dtype float32 but got float64");
}

TEST(SgdStepTest, NamesWhatIsWrong) {
  const Tensor rate = Tensor::scalar(0.1);
  UpdateSlot slot{counting({2}), counting({2})};
  const auto with = [&](const update::SGDStep& options, const Tensor& learning_rate) {
    return message_of([&] { update::sgd_step({&slot, 1}, learning_rate, options); });
  };
  EXPECT_EQ(with({.momentum = -1}, rate), "[sgd_step] expected momentum >= 0 but got -1");
  EXPECT_EQ(with({.weight_decay = -1}, rate), "[sgd_step] expected weight_decay >= 0 but got -1");
  EXPECT_EQ(with({.nesterov = true}, rate),
            "[sgd_step] Nesterov's step needs momentum > 0 and dampening = 0 but got 0 and 0");
  EXPECT_EQ(
      with({.momentum = 0.9}, rate),
      "[sgd_step] expected a buffer 'momentum' in slot 0 with momentum=0.9, dampening=0, weight_decay=0, "
      "nesterov=false, maximize=false, moving_momentum=false");
  EXPECT_EQ(with({}, Tensor::scalar(0.1f)),
            "[sgd_step] expected learning_rate[0] of dtype float64 but got float32");
  EXPECT_EQ(with({}, Tensor::full({1}, 0.1, DType::kFloat64)),
            "[sgd_step] expected learning_rate[0] of shape () but got (1,)");
  slot.buffers[0] = counting({2});
  EXPECT_EQ(
      with({}, rate),
      "[sgd_step] expected no buffer 'momentum' in slot 0 with momentum=0, dampening=0, weight_decay=0, "
      "nesterov=false, maximize=false, moving_momentum=false");
  slot.buffers[0] = counting({3});
  EXPECT_EQ(with({.momentum = 0.9}, rate), "[sgd_step] expected momentum[0] of shape (2,) but got (3,)");
  slot = {counting({2}), counting({3})};
  EXPECT_EQ(with({}, rate), "[sgd_step] expected gradient[0] of shape (2,) but got (3,)");
  slot = {counting({2}).set_requires_grad(true), counting({2})};
  EXPECT_EQ(
      with({}, rate),
      "[sgd_step] cannot change 'parameter' in place while its gradient is recorded; use sinter::NoGrad");
  slot = {counting({2}), counting({2}), {Tensor(), counting({2})}};
  EXPECT_EQ(with({}, rate), "[sgd_step] expected buffers[1] to be undefined");
  update::sgd_step({}, rate, {});
}

TEST(AdamWStepTest, NamesWhatIsWrong) {
  UpdateSlot slot{counting({2}), counting({2}), {counting({2}), counting({2})}};
  const auto with = [&](const update::AdamWStep& options, const Tensor& step) {
    slot.step = step;
    return message_of([&] { update::adamw_step({&slot, 1}, Tensor::scalar(0.1), options); });
  };
  const Tensor one = Tensor::scalar(int64_t{1});
  EXPECT_EQ(with({.beta1 = 1.0}, one), "[adamw_step] expected beta1 in [0, 1) but got 1");
  EXPECT_EQ(with({.beta2 = -0.1}, one), "[adamw_step] expected beta2 in [0, 1) but got -0.1");
  EXPECT_EQ(with({.epsilon = -1}, one), "[adamw_step] expected epsilon >= 0 but got -1");
  EXPECT_EQ(with({.weight_decay = -1}, one), "[adamw_step] expected weight_decay >= 0 but got -1");
  EXPECT_EQ(with({}, Tensor::scalar(int64_t{0})), "[adamw_step] expected a step count >= 1 but got 0");
  EXPECT_EQ(with({}, Tensor::scalar(1.0)), "[adamw_step] expected step[0] of dtype int64 but got float64");
  slot.buffers[1] = Tensor();
  EXPECT_EQ(with({}, one), "[adamw_step] input 'exp_avg_sq' is undefined");
  slot.buffers[1] = counting({1});
  EXPECT_EQ(with({}, one), "[adamw_step] expected exp_avg_sq[0] of shape (2,) but got (1,)");
}

}  // namespace
}  // namespace sinter::ops
