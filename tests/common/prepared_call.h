// A call of an op as jobs make it: chosen once, its memory taken once, run any number of times on any stream.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <sinter/core/op/dispatch.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::test {

class PreparedCall {
 public:
  /// Its outputs begin as zeros. Undefined tensors are absent inputs.
  PreparedCall(const Op& op, std::vector<Tensor> inputs, Attributes attributes, Device device)
      : op_(op),
        device_(device),
        inputs_(std::move(inputs)),
        attributes_(std::move(attributes)),
        input_specs_(specs_of(inputs_)),
        infer_(op.definition, input_specs_, attributes_),
        output_specs_(op.definition.infer(infer_)) {
    for (const TensorSpec& spec : output_specs_) {
      outputs_.push_back(Tensor::zeros(spec.shape, spec.dtype, spec.device));
    }
    describe(inputs_, input_views_);
    describe(outputs_, output_views_);
    backend_of(device).make_current(device.index);
    query_.emplace(infer_, output_specs_, input_views_);
    choice_ = choose_kernel(op, device, *query_);
    scratch_ =
        Tensor::empty({static_cast<int64_t>(choice_.workspace_bytes + kGuardBytes)}, DType::kUInt8, device);
    const std::vector<uint8_t> guard(kGuardBytes, kGuard);
    copy_bytes(static_cast<std::byte*>(scratch_.raw_data()) + choice_.workspace_bytes, device, guard.data(),
               Device::cpu(), kGuardBytes);
  }
  PreparedCall(std::string_view op, std::vector<Tensor> inputs, Attributes attributes, Device device)
      : PreparedCall(OpRegistry::instance().get(op), std::move(inputs), std::move(attributes), device) {}
  PreparedCall(const PreparedCall&) = delete;
  PreparedCall& operator=(const PreparedCall&) = delete;

  void run(const Stream& stream) const {
    backend_of(device_).make_current(device_.index);
    void* const scratch = choice_.workspace_bytes > 0 ? scratch_.raw_data() : nullptr;
    run_kernel(op_, choice_, *query_,
               KernelContext(input_views_, output_views_, attributes_, stream, scratch, choice_));
  }

  /// Whether no run has written behind its scratch.
  bool kept_to_scratch() const {
    const Tensor bytes = scratch_.to(Device::cpu());
    const auto* const guard = bytes.data<uint8_t>() + choice_.workspace_bytes;
    return std::all_of(guard, guard + kGuardBytes, [](uint8_t byte) { return byte == kGuard; });
  }

  const std::vector<Tensor>& inputs() const { return inputs_; }
  const std::vector<Tensor>& outputs() const { return outputs_; }
  const KernelChoice& choice() const { return choice_; }

 private:
  static constexpr size_t kGuardBytes = 4096;
  static constexpr uint8_t kGuard = 0xa5;

  static std::vector<const TensorSpec*> specs_of(const std::vector<Tensor>& tensors) {
    std::vector<const TensorSpec*> specs;
    for (const Tensor& tensor : tensors) specs.push_back(tensor.defined() ? &tensor.spec() : nullptr);
    return specs;
  }
  static void describe(const std::vector<Tensor>& tensors, std::vector<TensorView>& views) {
    for (const Tensor& tensor : tensors) {
      views.push_back(tensor.defined() ? TensorView{tensor.raw_data(), tensor.shape(), tensor.dtype(), true}
                                       : TensorView{});
    }
  }

  const Op& op_;
  Device device_;
  std::vector<Tensor> inputs_;
  Attributes attributes_;
  std::vector<const TensorSpec*> input_specs_;
  InferContext infer_;
  std::vector<TensorSpec> output_specs_;
  std::vector<Tensor> outputs_;
  std::vector<TensorView> input_views_, output_views_;
  std::optional<KernelQuery> query_;
  KernelChoice choice_;
  Tensor scratch_;
};

}  // namespace sinter::test
