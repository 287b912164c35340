// The table of hooks. Neither tensors nor recorded calls know of it, so that those without hooks pay nothing.
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <sinter/autograd/hook.h>
#include <sinter/autograd/hooks_internal.h>
#include <sinter/core/tensor/trace_access.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/copy/copy.h>

namespace sinter {
namespace autograd {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

/// A leaf (output -1), or an output of a recorded call.
using Place = std::pair<const void*, int>;

struct Watched {
  std::weak_ptr<void> owner;  // keeps the address from being used again
  std::vector<std::weak_ptr<Function>> hooks;
  bool retains = false;
  std::weak_ptr<void> retained;  // the tensor whose grad() is to have it
};

class Table {
 public:
  static Table& instance() {
    static auto* const table = new Table;  // hooks of static tensors may outlive other statics
    return *table;
  }
  bool is_empty() {
    if (size_.load(std::memory_order_relaxed) == 0) [[likely]]
      return true;
    const std::lock_guard lock(mutex_);
    drop_dead();
    return watched_.empty();
  }

  void add_hook(const Tensor& x, const std::shared_ptr<Function>& hook) {
    const std::lock_guard lock(mutex_);
    drop_dead();
    watch(x).hooks.push_back(hook);
  }
  void retain(const Tensor& x) {
    const std::lock_guard lock(mutex_);
    drop_dead();
    Watched& watched = watch(x);
    watched.retains = true;
    watched.retained = TraceAccess::watch(x);
  }
  /// The hooks that live, held, and the tensor that keeps the gradient.
  std::pair<std::vector<std::shared_ptr<Function>>, Tensor> find(const Place& place) {
    const std::lock_guard lock(mutex_);
    std::pair<std::vector<std::shared_ptr<Function>>, Tensor> found;
    const auto entry = watched_.find(place);
    if (entry == watched_.end()) return found;
    for (const auto& hook : entry->second.hooks) {
      if (auto alive = hook.lock()) found.first.push_back(std::move(alive));
    }
    if (entry->second.retains) found.second = TraceAccess::watched(entry->second.retained);
    return found;
  }

 private:
  Watched& watch(const Tensor& x) {
    const auto& node = AutogradAccess::node(x);
    const Place place =
        node != nullptr ? Place(node.get(), AutogradAccess::node_output(x)) : Place(TraceAccess::id(x), -1);
    Watched& watched = watched_[place];
    watched.owner = node != nullptr ? std::weak_ptr<void>(node) : TraceAccess::watch(x);
    size_.store(watched_.size(), std::memory_order_relaxed);
    return watched;
  }
  void drop_dead() {
    for (auto at = watched_.begin(); at != watched_.end();) {
      Watched& watched = at->second;
      std::erase_if(watched.hooks, [](const auto& hook) { return hook.expired(); });
      const bool retains = watched.retains && !watched.retained.expired();
      const bool is_dead = watched.owner.expired() || (watched.hooks.empty() && !retains);
      at = is_dead ? watched_.erase(at) : std::next(at);
    }
    size_.store(watched_.size(), std::memory_order_relaxed);
  }

  std::mutex mutex_;
  std::map<Place, Watched> watched_;
  std::atomic<size_t> size_ = 0;
};

/// What all hooks make of `gradient`, the first of them first.
Tensor run(const std::vector<std::shared_ptr<Function>>& hooks, Tensor gradient) {
  for (const auto& hook : hooks) {
    Tensor replaced = (*hook)(gradient);
    if (!replaced.defined()) continue;
    SINTER_CHECK(replaced.spec() == gradient.spec(),
                 "[register_hook] expected a gradient of {} from the hook but got {}", gradient.spec(),
                 replaced.spec());
    gradient = std::move(replaced);
  }
  return gradient;
}

void check(const char* tag, const Tensor& x) {
  SINTER_CHECK(!x.is_traced(),
               "[{}] {} is traced: gradients stay within a job; compute them with grad() in the traced code",
               tag, TraceAccess::value(x)->description());
  SINTER_CHECK(x.requires_grad(),
               "[{}] expected a tensor that requires a gradient, which this one of {} does not", tag,
               x.spec());
}

}  // namespace

bool any_hooks() {
  return !Table::instance().is_empty();
}

bool has_hook(const Tensor& leaf) {
  return any_hooks() && !Table::instance().find({TraceAccess::id(leaf), -1}).first.empty();
}

Tensor run_hooks(const Node& node, int output, Tensor gradient) {
  return run(Table::instance().find({&node, output}).first, std::move(gradient));
}

void retain(const Node& node, int output, const Tensor& gradient) {
  const Tensor retained = Table::instance().find({&node, output}).second;
  if (!retained.defined()) return;
  const Tensor before = retained.grad();
  retained.set_grad(before.defined() ? ops::add(before, gradient) : ops::copy(gradient));
}

Tensor run_hooks(const Tensor& leaf, Tensor gradient) {
  return run(Table::instance().find({TraceAccess::id(leaf), -1}).first, std::move(gradient));
}

}  // namespace autograd

Tensor Tensor::retain_grad() const {
  autograd::check("retain_grad", *this);
  if (!is_leaf()) autograd::Table::instance().retain(*this);
  return *this;
}

Hook Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) const {
  autograd::check("register_hook", *this);
  SINTER_CHECK(hook != nullptr, "[register_hook] expected a function but got none");
  auto entry = std::make_shared<autograd::Function>(std::move(hook));
  autograd::Table::instance().add_hook(*this, entry);
  return Hook(std::move(entry));
}

}  // namespace sinter
