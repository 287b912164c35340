// What grad() of recorded calls and of a job's graph have in common.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sinter/autograd/grad.h>
#include <sinter/core/base/error.h>
#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/call_tracer.h>
#include <sinter/core/op/node.h>

namespace sinter::autograd {

/// While it lives, gradient rules are recorded: calls are watched for ops that a gradient would have to go
/// through and that have none, for which Unsupported is thrown.
class RecordedRules final : public CallTracer {
 public:
  RecordedRules() : outer_(set_call_tracer(this)) {}
  ~RecordedRules() override { set_call_tracer(outer_); }
  RecordedRules(const RecordedRules&) = delete;
  RecordedRules& operator=(const RecordedRules&) = delete;

  /// The op whose rule runs next.
  void set_op(const Op& op) { op_ = &op; }
  std::optional<std::vector<Tensor>> take(const Op& op, std::span<const Tensor> inputs,
                                          const Attributes& attributes,
                                          std::span<const TensorSpec> specs) override;
  void keep(const Tensor& tensor, const std::string& name) override {
    if (outer_ != nullptr) outer_->keep(tensor, name);
  }
  void host_reads(const Tensor& tensor) override {
    if (outer_ != nullptr) outer_->host_reads(tensor);
  }

 private:
  CallTracer* outer_;
  const Op* op_ = nullptr;
};

[[noreturn]] void fail_flow(const Op& op, size_t output);

/// Throws Unsupported if a gradient goes to an output of `op` that has none: its rule reads what that output
/// holds, as a constant.
inline void check_flow(const Op& op, std::span<const Tensor> gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!op.definition.outputs[i].differentiable && gradients[i].defined()) [[unlikely]]
      fail_flow(op, i);
  }
}

/// The gradient to start from at result i.
Tensor start_of(const std::vector<Tensor>& results, size_t i, const GradOptions& options);

/// grad() through recorded calls, its arguments checked: a gradient for each input, undefined where none of
/// the results was computed from it. `released` becomes the name of an op whose graph was released already,
/// if the walk met one on its way.
std::vector<Tensor> recorded_gradients(const std::vector<Tensor>& results, const std::vector<Tensor>& inputs,
                                       const GradOptions& options, std::string& released);

/// The same in the graph that `tracer` writes.
std::vector<Tensor> traced_gradients(Tracer& tracer, const std::vector<Tensor>& results,
                                     const std::vector<Tensor>& inputs, const GradOptions& options);

}  // namespace sinter::autograd
