// A chain of modules, and a list of them.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// Feeds each module's output to the next: `Sequential(Linear(2, 64), ReLU(), Linear(64, 3))`. The modules
/// are named "0", "1", ... An empty chain is the identity.
class Sequential : public Module {
 public:
  Sequential() = default;
  template <std::derived_from<Module>... Modules>
  requires(sizeof...(Modules) > 1 ||
           !(std::derived_from<Modules, Sequential> && ...)) explicit Sequential(Modules... modules) {
    (add(std::move(modules)), ...);
  }
  Sequential(const Sequential& other)
      : Module(other),
        modules_(detail::CloneScope::copy_of(other.modules_, [](const std::vector<AnyModule>& modules) {
          return std::make_shared<std::vector<AnyModule>>(modules);
        })) {}

  /// Appends a module. Throws InvalidArgument if it works in another layout than those before it.
  void add(const AnyModule& module) {
    check_next(module);
    child(std::to_string(modules_->size()), module);
    modules_->push_back(module);
  }

  size_t size() const { return modules_->size(); }
  const AnyModule& operator[](size_t i) const { return modules_->at(i); }

  Tensor forward(const Tensor& x) const override {
    Tensor y = x;
    for (const AnyModule& module : *modules_) y = module(y);
    return y;
  }

 private:
  // Shared, so that a copy sees what is added to the other, as with all members of modules.
  std::shared_ptr<std::vector<AnyModule>> modules_ = std::make_shared<std::vector<AnyModule>>();
};

/// Modules in a row that forward() calls as it likes, `for (const AnyModule& block : blocks) x = block(x);`,
/// named "0", "1", ... as those of a Sequential. Register the list itself: `blocks = child("blocks", ...)`.
class ModuleList : public ModuleBase {
 public:
  ModuleList() = default;
  explicit ModuleList(const std::vector<AnyModule>& modules) {
    for (const AnyModule& module : modules) add(module);
  }
  ModuleList(const ModuleList& other)
      : ModuleBase(other),
        modules_(detail::CloneScope::copy_of(other.modules_, [](const std::vector<AnyModule>& modules) {
          return std::make_shared<std::vector<AnyModule>>(modules);
        })) {}

  void add(const AnyModule& module) {
    child(std::to_string(modules_->size()), module);
    modules_->push_back(module);
  }

  size_t size() const { return modules_->size(); }
  const AnyModule& operator[](size_t i) const { return modules_->at(i); }
  std::vector<AnyModule>::const_iterator begin() const { return modules_->begin(); }
  std::vector<AnyModule>::const_iterator end() const { return modules_->end(); }

 private:
  std::shared_ptr<std::vector<AnyModule>> modules_ = std::make_shared<std::vector<AnyModule>>();
};

}  // namespace sinter::nn
