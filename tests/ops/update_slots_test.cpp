// The optimisers' update ops, whatever the rule: what becomes of an element depends neither on its place in
// memory nor on the other slots of the call, and is the same on a GPU as on the CPU.
#include <numeric>

#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/optimizer/optimizer.h>

#include "ops/float_places.h"

namespace sinter::ops {
namespace {

struct Update {
  const char* op;
  Attributes options;
  std::vector<bool> buffers;  ///< which are there
  bool adapts = false;        ///< sums over whole slots come in
};

/// Every rule, with little and with all that its options add.
std::vector<Update> updates() {
  return {
      {"sgd_step", update::SGDStep{}, {false}},
      {"sgd_step", update::SGDStep{.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.05}, {true}},
      {"sgd_step",
       update::SGDStep{.momentum = 0.9, .weight_decay = 0.05, .nesterov = true, .maximize = true},
       {true}},
      {"adamw_step", update::AdamWStep{}, {true, true, false}},
      {"adamw_step",
       update::AdamWStep{.decoupled = false, .amsgrad = true, .maximize = true},
       {true, true, true}},
      {"rmsprop_step", update::RMSpropStep{}, {true, false, false}},
      {"rmsprop_step", update::RMSpropStep{.momentum = 0.9, .weight_decay = 0.05}, {true, false, true}},
      {"rmsprop_step",
       update::RMSpropStep{.momentum = 0.9, .weight_decay = 0.05, .centered = true, .maximize = true},
       {true, true, true}},
      {"lars_step", update::LARSStep{.weight_decay = 0.05, .adapts = false}, {true}},
      {"lars_step", update::LARSStep{.weight_decay = 0.05, .nesterov = true}, {true}, true},
      {"lamb_step", update::LAMBStep{.weight_decay = 0.05, .adapts = false}, {true, true}},
      {"lamb_step", update::LAMBStep{.weight_decay = 0.05}, {true, true}, true},
  };
}

/// The arrays of all slots of a call, end to end: parameters, gradients, buffers, working copies.
class Arrays {
 public:
  /// `count` random elements each, behind `front` others. `gradient`: the dtype of gradients and, if another
  /// than the parameters', of working copies.
  Arrays(const Update& update, DType parameter, DType gradient, Device device, int64_t count,
         int64_t front = 0)
      : update_(update), front_(front) {
    const NoGrad no_grad;
    Generator random(7);
    const auto add = [&](DType dtype, double low, double high) {
      std::vector<float> values(static_cast<size_t>(front + count), 0.5f);
      for (int64_t i = front; i < front + count; ++i) {
        values[static_cast<size_t>(i)] = static_cast<float>(low + (high - low) * random.uniform());
      }
      arrays_.push_back(cast(Tensor::from_values(values, {front + count}), dtype).to(device));
    };
    add(parameter, -2, 2);
    add(gradient, -2, 2);
    // A square in the first buffer stays above that of a mean in the second.
    for (size_t i = 0; i < update.buffers.size(); ++i) {
      const double low = i == 0 ? 1.5 : 0.25;
      update.buffers[i] ? add(parameter, low, low + 0.5) : arrays_.push_back(Tensor());
    }
    parameter != gradient ? add(gradient, -2, 2) : arrays_.push_back(Tensor());
    tail_ = {Tensor::scalar(0.0625, device), Tensor::scalar(int64_t{3}, device),
             Tensor::scalar(0.75f, device)};
  }

  /// One call for slots of these lengths, the first of which begins at element `begin`.
  void step(const std::vector<int64_t>& lengths, int64_t begin = 0) const {
    const NoGrad no_grad;
    std::vector<Tensor> inputs;
    for (const int64_t length : lengths) {
      for (const Tensor& array : arrays_) {
        if (!array.defined()) {
          inputs.emplace_back();
          continue;
        }
        const size_t at = static_cast<size_t>(front_ + begin) * size_of(array.dtype());
        inputs.push_back(Tensor::over(array.storage(), array.offset_bytes() + at,
                                      {{length}, array.dtype(), array.device()}));
      }
      inputs.insert(inputs.end(), tail_.begin(), tail_.end());
      begin += length;
    }
    call(OpRegistry::instance().get(update_.op), inputs, update_.options);
  }

  /// All elements of the arrays that are there.
  std::vector<std::vector<double>> values() const {
    std::vector<std::vector<double>> all;
    for (const Tensor& array : arrays_) {
      if (!array.defined()) continue;
      const auto values = cast(array.to(Device::cpu()), DType::kFloat64).to_vector<double>();
      all.emplace_back(values.begin() + front_, values.end());
    }
    return all;
  }

 private:
  const Update& update_;
  int64_t front_;
  std::vector<Tensor> arrays_, tail_;
};

class UpdateSlots : public FloatPlaceTest {
 protected:
  /// function(update, dtype of parameters) for all rules, with and without working copies.
  template <class F>
  static void for_each_update(F function) {
    const DType dtype = GetParam().dtype;
    for (const Update& update : updates()) {
      for (const DType parameter : {dtype, DType::kFloat32}) {
        if (parameter != dtype && !is_half(dtype)) continue;
        SCOPED_TRACE(std::string(update.op) + " " + to_string(update.options) + " of " +
                     std::string(to_string(parameter)));
        function(update, parameter);
      }
    }
  }
};

/// In packs, or one by one where a slot begins between multiples of 16 bytes or ends.
TEST_P(UpdateSlots, AnElementsBitsDoNotDependOnItsPlace) {
  const auto [device, dtype] = GetParam();
  for_each_update([&, device = device, dtype = dtype](const Update& update, DType parameter) {
    if (update.adapts) return;  // the order of sums may be another
    const Arrays aligned(update, parameter, dtype, device, 1003);
    const Arrays shifted(update, parameter, dtype, device, 1003, 1);
    aligned.step({1003});
    shifted.step({1003});
    EXPECT_EQ(shifted.values(), aligned.values());
  });
}

/// More slots than one launch on a GPU takes, of none to some blocks of elements.
TEST_P(UpdateSlots, TogetherTheyAreAsEachAlone) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 300; ++i) lengths.push_back(i % 100 == 50 ? 20001 + i : i % 23);
  const int64_t count = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const auto [device, dtype] = GetParam();
  for_each_update([&, device = device, dtype = dtype](const Update& update, DType parameter) {
    const Arrays together(update, parameter, dtype, device, count);
    const Arrays alone(update, parameter, dtype, device, count);
    together.step(lengths);
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      alone.step({length}, begin);
      begin += length;
    }
    EXPECT_EQ(together.values(), alone.values());
  });
}

TEST_P(UpdateSlots, AGpuAgreesWithTheCpu) {
  const auto [device, dtype] = GetParam();
  if (device.is_cpu()) GTEST_SKIP() << "of GPUs";
  for_each_update([&, device = device, dtype = dtype](const Update& update, DType parameter) {
    const std::vector<int64_t> lengths = {20001, 3, 8192};
    const Arrays here(update, parameter, dtype, Device::cpu(), 30000);
    const Arrays there(update, parameter, dtype, device, 30000);
    here.step(lengths);
    there.step(lengths);
    const auto expected = here.values(), got = there.values();
    ASSERT_EQ(got.size(), expected.size());
    const double tolerance = 4 * default_tolerance(dtype);  // of numbers up to 4
    for (size_t array = 0; array < got.size(); ++array) {
      for (size_t i = 0; i < got[array].size(); ++i) {
        ASSERT_NEAR(got[array][i], expected[array][i], tolerance) << "array " << array << ", element " << i;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Everywhere, UpdateSlots, testing::ValuesIn(float_places()), float_place_name);

}  // namespace
}  // namespace sinter::ops
