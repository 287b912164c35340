// The registry: every op by name, with its kernels. Sinter's own ops are there from the first access; users'
// ops come by OpRegistry::add from their program or by load_library at run time.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/op_def.h>

namespace sinter {

/// A registered op. Its address never changes.
struct Op {
  OpDef definition;
  std::vector<Kernel> kernels = {};                      ///< the one registered last comes first
  bool estimates = false;                                ///< whether any of them estimates its time
  std::array<int, kDeviceTypes> kernels_of_device = {};  ///< how many there are, by DeviceType

  const std::string& name() const { return definition.name; }
};

/// All members are safe to call from several threads, except that kernels must not be added to an op in use.
class OpRegistry {
 public:
  /// The process's registry, which holds all of Sinter's own ops.
  static OpRegistry& instance();

  /// Adds an op. Throws InvalidArgument if the name is taken or the definition incomplete.
  const Op& add(OpDef definition);
  /// Adds a kernel to an op that is there already; else throws InvalidArgument.
  void add_kernel(std::string_view op, Kernel kernel);

  /// The op, or nullptr.
  const Op* find(std::string_view name) const;
  /// The op; throws InvalidArgument if there is none, naming the closest.
  const Op& get(std::string_view name) const;
  /// All names, sorted.
  std::vector<std::string> names() const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::string, std::unique_ptr<Op>, std::less<>> ops_;
};

/// Loads a shared library that exports `extern "C" void sinter_register_ops(sinter::OpRegistry&)` and lets it
/// add its ops. Throws IoError if it cannot be loaded or lacks the function. The library stays loaded.
void load_library(const std::string& path);

}  // namespace sinter
