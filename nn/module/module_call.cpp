// Calls of modules: who calls whom, who is told, and hooks.
#include <sinter/nn/module/module_node_internal.h>

namespace sinter::nn {
namespace {

thread_local ModuleCall* innermost = nullptr;
thread_local ModuleObserver* module_observer = nullptr;

}  // namespace

ModuleObserver* set_module_observer(ModuleObserver* observer) {
  return std::exchange(module_observer, observer);
}

ModuleCall::ModuleCall(const ModuleBase& module) : module_(module), outer_(innermost) {
  const ModuleBase::Node* const node = module.node_.get();
  if (outer_ != nullptr) {
    registered_ = false;
    for (const ModuleCall* call = outer_; call != nullptr && !registered_; call = call->outer_) {
      registered_ = call->module_.node_->reaches(node);
    }
    if (!registered_ && node->owns_variables()) {
      std::string names;
      for (const auto& [name, tensor] : module.named_parameters())
        names += (names.empty() ? "" : ", ") + name;
      throw_error<InvalidArgument>(
          "[module] {} calls a {} ({}) that is not registered with it, so it is neither trained, moved nor "
          "saved: initialise the member with child(\"name\", ...), or with borrow(...) if that is meant",
          type_name(typeid(outer_->module_)), type_name(typeid(module)),
          names.empty() ? "with buffers" : "with parameters " + names);
    }
  }
  innermost = this;
  if (module_observer != nullptr) [[unlikely]]
    module_observer->enter(node);
}

void ModuleCall::finish(const Tensor& output) {
  finished_ = true;
  innermost = outer_;
  if (module_observer != nullptr) [[unlikely]]
    module_observer->leave(module_.node_.get(), &output);
}

ModuleCall::~ModuleCall() {
  if (finished_) return;
  innermost = outer_;
  if (module_observer != nullptr) [[unlikely]]
    module_observer->leave(module_.node_.get(), nullptr);
}

Hook ModuleBase::add_forward_hook(std::shared_ptr<void> hook) const {
  std::erase_if(node_->forward_hooks, [](const auto& other) { return other.expired(); });
  node_->forward_hooks.push_back(hook);
  return Hook(std::move(hook));
}

bool ModuleBase::has_forward_hooks() const {
  return !node_->forward_hooks.empty();
}

std::vector<std::shared_ptr<void>> ModuleBase::forward_hooks() const {
  return node_->living_hooks();
}

void ModuleCall::ask_mode(const ModuleBase& module) {
  if (module_observer != nullptr) [[unlikely]]
    module_observer->ask_mode(module.node_.get());
  const ModuleCall* const call = innermost;
  if (call == nullptr || call->registered_ || call->module_.node_ != module.node_) return;
  throw_error<InvalidArgument>(
      "[module] {} calls a {} that is not registered with it, so train() and eval() do not reach it: "
      "initialise a member with child(\"name\", ...)",
      type_name(typeid(call->outer_->module_)), type_name(typeid(call->module_)));
}

}  // namespace sinter::nn
