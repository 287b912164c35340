#include <sinter/nn/module/clone_scope.h>

namespace sinter::nn::detail {
namespace {

thread_local CloneScope* innermost = nullptr;

}  // namespace

CloneScope::CloneScope() : outer_(innermost) {
  innermost = this;
}
CloneScope::~CloneScope() {
  innermost = outer_;
}

bool CloneScope::active() {
  return innermost != nullptr;
}

std::shared_ptr<void> CloneScope::find(const void* original) {
  const auto found = innermost->copies_.find(original);
  return found == innermost->copies_.end() ? nullptr : found->second;
}

void CloneScope::keep(const void* original, const std::shared_ptr<void>& copy) {
  innermost->copies_[original] = copy;
  innermost->copies_[copy.get()] = copy;
}

}  // namespace sinter::nn::detail
