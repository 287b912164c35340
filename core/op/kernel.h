// Kernel: one implementation of an op on one type of device, and what it is given when it is chosen and run.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sinter/core/op/op_def.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/thread_pool.h>

namespace sinter {

/// A tensor as a kernel sees it: where it lies and what it holds, without ownership.
struct TensorView {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::kFloat32;
  bool present = false;  ///< false for an optional input that was not given

  int64_t numel() const { return shape.numel(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// What the choice of a kernel and its workspace depend on: specs, alignment, how much scratch and how many
/// threads there are, never values.
class KernelQuery {
 public:
  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

  /// Without `inputs`, which say where the tensors lie, all of them count as aligned. A kernel that needs
  /// more than `workspace_limit` bytes of scratch is not chosen.
  KernelQuery(const InferContext& call, std::span<const TensorSpec> outputs,
              std::span<const TensorView> inputs = {}, size_t workspace_limit = kNoLimit)
      : call_(call), outputs_(outputs), inputs_(inputs), workspace_limit_(workspace_limit) {}

  const OpDef& op() const { return call_.op(); }
  bool has_input(size_t i) const { return call_.has(i); }
  size_t input_count() const { return call_.input_count(); }
  const TensorSpec& input(size_t i) const { return call_.input(i); }
  /// Whether input i, which is there, begins at a multiple of `bytes`; views of slices may not. Outputs
  /// always do.
  bool is_aligned(size_t i, size_t bytes) const {
    return i >= inputs_.size() || reinterpret_cast<uintptr_t>(inputs_[i].data) % bytes == 0;
  }
  /// The largest power of two up to `most`, itself one, that divides the address of input i.
  size_t alignment(size_t i, size_t most) const {
    const uintptr_t address = i < inputs_.size() ? reinterpret_cast<uintptr_t>(inputs_[i].data) : 0;
    return size_t{1} << std::countr_zero(address | most);
  }
  size_t output_count() const { return outputs_.size(); }
  const TensorSpec& output(size_t i) const { return outputs_[i]; }
  template <AttributesStruct T>
  const T& attributes() const {
    return call_.attributes<T>();
  }
  const Attributes& attributes() const { return call_.attributes(); }
  const InferContext& call() const { return call_; }
  std::span<const TensorSpec> outputs() const { return outputs_; }
  std::span<const TensorView> inputs() const { return inputs_; }
  /// The most scratch that a kernel may ask for.
  size_t workspace_limit() const { return workspace_limit_; }
  /// The same question with that limit.
  KernelQuery within(size_t workspace_limit) const {
    KernelQuery query = *this;
    query.workspace_limit_ = workspace_limit;
    return query;
  }
  /// How many parts of a call on the CPU may have scratch of their own: num_threads() when the question was
  /// put. A run gets the same number (KernelContext::threads), whatever num_threads() has become meanwhile.
  int threads() const { return threads_; }

 private:
  const InferContext& call_;
  std::span<const TensorSpec> outputs_;
  std::span<const TensorView> inputs_;
  size_t workspace_limit_;
  int threads_ = num_threads();
};

/// What a kernel found out when it was chosen for a call, and needs to run it: a vendor's plan, the shapes of
/// launches. It depends on specs, alignment and settings (core/runtime/settings.h), which are read when it is
/// made, and serves any number of runs, also at once from several threads.
class Prepared {
 public:
  virtual ~Prepared() = default;
  /// Bytes of scratch that a run takes.
  virtual size_t workspace_bytes() const { return 0; }
  /// What was chosen, in a few words, for reports; empty if the kernel's name says it all.
  virtual std::string detail() const { return {}; }
};

struct Kernel;

/// A kernel that was chosen for calls of certain specs, ready to run any number of them, with all that was
/// decided when it was chosen.
struct KernelChoice {
  const Kernel* kernel = nullptr;
  std::shared_ptr<const Prepared> prepared;  ///< null if the kernel prepares nothing
  size_t workspace_bytes = 0;                ///< scratch of one run
  int threads = 1;                           ///< KernelQuery::threads()
};

/// Everything a kernel works on. Outputs are allocated and hold undefined values. Whatever a run shares with
/// `workspace_bytes`, `can_run` or `prepare` it takes from here: what the process is set to now may differ.
class KernelContext {
 public:
  /// For a run of `choice`, which must outlive this, with scratch of choice.workspace_bytes at `workspace`.
  KernelContext(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                const Attributes& attributes, const Stream& stream, void* workspace,
                const KernelChoice& choice)
      : inputs_(inputs),
        outputs_(outputs),
        attributes_(attributes),
        stream_(stream),
        workspace_(workspace),
        choice_(choice) {}

  size_t input_count() const { return inputs_.size(); }
  size_t output_count() const { return outputs_.size(); }
  bool has_input(size_t i) const { return i < inputs_.size() && inputs_[i].present; }
  const TensorView& input(size_t i) const { return inputs_[i]; }
  const TensorView& output(size_t i) const { return outputs_[i]; }
  template <AttributesStruct T>
  const T& attributes() const {
    return attributes_.as<T>();
  }
  const Stream& stream() const { return stream_; }
  /// Scratch of the size that Kernel::workspace_bytes or Prepared::workspace_bytes answered, aligned to 256
  /// bytes, contents undefined.
  template <class T = void>
  T* workspace() const {
    return static_cast<T*>(workspace_);
  }
  size_t workspace_bytes() const { return choice_.workspace_bytes; }
  /// The number of threads for which `workspace_bytes` answered: how many parts may have scratch of their
  /// own.
  int threads() const { return choice_.threads; }
  /// What the kernel's `prepare` gave, which is of this type.
  template <class T>
  const T& prepared() const {
    return static_cast<const T&>(*choice_.prepared);
  }

 private:
  std::span<const TensorView> inputs_, outputs_;
  const Attributes& attributes_;
  Stream stream_;
  void* workspace_;
  const KernelChoice& choice_;
};

/// For Kernel::microseconds of a kernel that is the best wherever it pays, and is not to be chosen elsewhere.
constexpr double best_if(bool pays) {
  return pays ? 0.0 : std::numeric_limits<double>::infinity();
}

/// Of several that can run a call, that of the least estimate is chosen, before all those without one; of
/// equal ones, and of those without, the one that was registered last: so the general kernel comes first. Ops
/// may measure what estimates leave open (OpDef::choose).
struct Kernel {
  DeviceType device = DeviceType::kCpu;
  std::string name = "default";                   ///< for logs, profiles and tests
  bool (*can_run)(const KernelQuery&) = nullptr;  ///< null: always
  /// Estimates the time of one run from the question and from what `prepare` gave, or null; infinity: not to
  /// be chosen. Not asked where the kernel is forced. Null: unknown.
  double (*microseconds)(const KernelQuery&, const Prepared*) = nullptr;
  size_t (*workspace_bytes)(const KernelQuery&) = nullptr;  ///< null: none
  /// For kernels that find out more than `can_run` can say: what a run needs, or null where the kernel cannot
  /// run this call after all. Prepared::workspace_bytes then stands in for `workspace_bytes`; it should keep
  /// to KernelQuery::workspace_limit if the kernel can do with less scratch. Null: there is nothing to
  /// prepare.
  std::shared_ptr<const Prepared> (*prepare)(const KernelQuery&) = nullptr;
  void (*run)(const KernelContext&) = nullptr;
};

}  // namespace sinter
