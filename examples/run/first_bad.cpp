#include "run/first_bad.h"

#include <cmath>
#include <vector>

#include <fmt/core.h>

#include <sinter/core/op/node.h>
#include <sinter/ops/grad_norm/grad_norm.h>

namespace sinter::examples {

namespace {

bool is_finite(const Tensor& tensor) {
  const NoGrad no_grad;
  return std::isfinite(ops::update::grad_norm({&tensor, 1}).item());
}

/// Looks at the output of every layer that is called on this thread while it lives.
class Watcher final : public nn::ModuleObserver {
 public:
  Watcher() : before_(nn::set_module_observer(this)) {}
  ~Watcher() override { nn::set_module_observer(before_); }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  void enter(const void* id) override {
    if (before_ != nullptr) before_->enter(id);
  }
  void leave(const void* id, const Tensor* output) override {
    if (before_ != nullptr) before_->leave(id, output);
    if (first_ == nullptr && output != nullptr && is_float(output->dtype()) && !is_finite(output->detach()))
      first_ = id;
  }
  /// The layer whose call ended first with a value that is not finite: the innermost.
  const void* first() const { return first_; }

 private:
  nn::ModuleObserver* before_;
  const void* first_ = nullptr;
};

}  // namespace

std::string first_bad_value(const nn::ModuleBase& model, const std::function<void()>& run) {
  const std::vector<nn::Parameter> parameters = model.parameters();
  for (const nn::Parameter& parameter : parameters) {
    if (!is_finite(parameter.master().detach()))
      return fmt::format("the first bad value is in the weights {}", parameter.name());
  }
  const Watcher watcher;
  run();
  for (const nn::ModuleInfo& layer : model.modules()) {
    if (layer.id == watcher.first())
      return fmt::format("the first bad value is an output of {} ({})",
                         layer.path.empty() ? "the network" : layer.path, layer.type);
  }
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    if (parameter->grad().defined() && !is_finite(parameter->grad()))
      return fmt::format("the first bad value is in the gradient of {}", parameter->name());
  }
  return {};
}

}  // namespace sinter::examples
