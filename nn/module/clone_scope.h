// How nn::clone makes independent copies of handles.
#pragma once

#include <map>
#include <memory>

namespace sinter::nn::detail {

/// While one lives, copies of modules and variables made on this thread are independent of their originals.
/// Two copies of one original are handles on one copy, and copies of that are handles on it too.
class CloneScope {
 public:
  [[nodiscard]] CloneScope();
  ~CloneScope();
  CloneScope(const CloneScope&) = delete;
  CloneScope& operator=(const CloneScope&) = delete;

  static bool active();

  /// `original` itself or, while a scope lives, its copy, which `make(*original)` gives the first time.
  template <class T, class Make>
  static std::shared_ptr<T> copy_of(const std::shared_ptr<T>& original, const Make& make) {
    if (original == nullptr || !active()) return original;
    if (std::shared_ptr<void> known = find(original.get())) return std::static_pointer_cast<T>(known);
    std::shared_ptr<T> copy = make(*original);
    keep(original.get(), copy);
    return copy;
  }

 private:
  static std::shared_ptr<void> find(const void* original);
  static void keep(const void* original, const std::shared_ptr<void>& copy);

  CloneScope* const outer_;
  std::map<const void*, std::shared_ptr<void>> copies_;
};

}  // namespace sinter::nn::detail
