// A list of things that cost more to make than to keep.
#pragma once

#include <mutex>
#include <utility>

namespace sinter::cuda {

/// Nodes that nobody uses at present; they are linked through their member `next`, so that nothing here
/// allocates or fails. Owns nothing. Safe to use from several threads.
template <class Node>
class SpareList {
 public:
  /// The node that was put here last, or nullptr.
  Node* take() noexcept {
    const std::lock_guard lock(mutex_);
    Node* const node = first_;
    if (node != nullptr) first_ = std::exchange(node->next, nullptr);
    return node;
  }

  void put(Node* node) noexcept {
    const std::lock_guard lock(mutex_);
    node->next = std::exchange(first_, node);
  }

 private:
  std::mutex mutex_;
  Node* first_ = nullptr;
};

}  // namespace sinter::cuda
