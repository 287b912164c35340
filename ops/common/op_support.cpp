#include <mutex>

#include <sinter/ops/common/op_support.h>

namespace sinter::ops {

void register_builtin_ops(OpRegistry& registry);  // generated: calls register_<op> of every folder

void register_all() {
  static std::once_flag once;
  std::call_once(once, [] { register_builtin_ops(OpRegistry::instance()); });
}

const Op& builtin(std::string_view name) {
  register_all();
  return OpRegistry::instance().get(name);
}

}  // namespace sinter::ops
