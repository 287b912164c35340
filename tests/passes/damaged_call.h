// A kernel that is wrong on purpose: what the call gives is damaged before the verifier sees it.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <sinter/core/runtime/backend.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/passes/calls/call_verifier.h>

namespace sinter::passes::testing {

enum class Fault : uint8_t { kNone, kLastRow, kChannel, kScale, kRelative };

/// Between a kernel and the verifier: damages the first result of one call.
class Damaged final : public ProgramWatch {
 public:
  Damaged(CallVerifier& verifier, Device device, size_t call, Fault fault)
      : verifier_(verifier), sound_(device), device_(device), call_(call), fault_(fault) {}

  void before(const ProgramCall& call, std::span<const TensorView> inputs) override {
    verifier_.before(call, inputs);
    if (at_ == call_) sound_.before(call, inputs);
  }
  void after(const ProgramCall& call, std::span<const TensorView> inputs,
             std::span<const TensorView> outputs) override {
    const bool floats = !outputs.empty() && outputs[0].present && is_float(outputs[0].dtype);
    if (at_ == call_) sound_.after(call, inputs, outputs);
    if (at_++ == call_ && fault_ != Fault::kNone && floats) damage(outputs[0]);
    verifier_.after(call, inputs, outputs);
  }
  /// Whether the fault changed anything by half a percent of a typical number, in a result of which the
  /// kernel gives that much right: what is left where all terms cancel is rounding, as good as any other.
  bool shows() const {
    if (sound_.checks().empty()) return false;
    const CallCheck& sound = sound_.checks().front();
    const bool is_noise = sound.result == 0 && std::abs(sound.got - sound.expected) > visible_;
    return changed_ > visible_ && !is_noise;
  }

 private:
  void damage(const TensorView& view) {
    Tensor tensor = Tensor::empty({view.shape, view.dtype, Device::cpu()});
    copy_bytes(tensor.raw_data(), Device::cpu(), view.data, device_, tensor.spec().bytes());
    synchronize(device_);
    std::vector<double> values = ops::cast(tensor, DType::kFloat64).to_vector<double>();
    const std::vector<double> before = values;
    const auto count = static_cast<int64_t>(values.size());
    if (count == 0 || view.shape.rank() == 0) return;
    const int64_t rows = view.shape[0], row = count / rows;
    const int64_t channels = view.shape.rank() > 1 ? view.shape[1] : rows,
                  inner = std::max<int64_t>(1, count / (rows * channels));
    for (int64_t i = 0; i < count; ++i) {
      double& value = values[static_cast<size_t>(i)];
      switch (fault_) {
        case Fault::kLastRow:  // that of the row before
          if (i >= count - row) value = rows > 1 ? values[static_cast<size_t>(i - row)] : 0.0;
          break;
        case Fault::kChannel:  // was forgotten
          if (i / inner % channels == channels / 2) value = 0.0;
          break;
        case Fault::kScale:
          value *= 0.5;
          break;
        case Fault::kRelative:
          value *= 1.01;
          break;
        case Fault::kNone:
          break;
      }
    }
    double squares = 0.0;
    for (size_t i = 0; i < values.size(); ++i) {
      changed_ = std::max(changed_, std::abs(values[i] - before[i]));
      squares += before[i] * before[i];
    }
    visible_ = 0.005 * std::sqrt(squares / static_cast<double>(count));
    const Tensor damaged = ops::cast(Tensor::from_values(values, view.shape), view.dtype);
    copy_bytes(view.data, device_, damaged.raw_data(), Device::cpu(), damaged.spec().bytes());
    synchronize(device_);
  }

  CallVerifier& verifier_;
  CallVerifier sound_;  // of the call alone, before the damage
  Device device_;
  size_t call_;
  Fault fault_;
  size_t at_ = 0;
  double changed_ = 0, visible_ = 0;
};

}  // namespace sinter::passes::testing
