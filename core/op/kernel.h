// Kernel: one implementation of an op on one type of device, and what it is given when it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sinter/core/op/op_def.h>
#include <sinter/core/runtime/backend.h>

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

/// What the choice of a kernel and its workspace depend on: specs and alignment, never values.
class KernelQuery {
 public:
  /// Without tensors all inputs count as aligned.
  KernelQuery(const InferContext& call, std::span<const TensorSpec> outputs,
              std::span<const Tensor> inputs = {})
      : call_(call), outputs_(outputs), inputs_(inputs) {}

  const OpDef& op() const { return call_.op(); }
  bool has_input(size_t i) const { return call_.has(i); }
  size_t input_count() const { return call_.input_count(); }
  const TensorSpec& input(size_t i) const { return call_.input(i); }
  /// Whether input i, which is there, begins at a multiple of `bytes`; views of slices may not. Outputs
  /// always do.
  bool is_aligned(size_t i, size_t bytes) const {
    return i >= inputs_.size() || reinterpret_cast<uintptr_t>(inputs_[i].raw_data()) % bytes == 0;
  }
  size_t output_count() const { return outputs_.size(); }
  const TensorSpec& output(size_t i) const { return outputs_[i]; }
  template <AttributesStruct T>
  const T& attributes() const {
    return call_.attributes<T>();
  }
  const Attributes& attributes() const { return call_.attributes(); }

 private:
  const InferContext& call_;
  std::span<const TensorSpec> outputs_;
  std::span<const Tensor> inputs_;
};

/// Everything a kernel works on. Outputs are allocated and hold undefined values.
class KernelContext {
 public:
  KernelContext(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                const Attributes& attributes, const Stream& stream, void* workspace, size_t workspace_bytes)
      : inputs_(inputs),
        outputs_(outputs),
        attributes_(attributes),
        stream_(stream),
        workspace_(workspace),
        workspace_bytes_(workspace_bytes) {}

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
  /// Scratch of the size that Kernel::workspace_bytes answered (less only under least_workspace_bytes),
  /// aligned to 256 bytes, contents undefined.
  template <class T = void>
  T* workspace() const {
    return static_cast<T*>(workspace_);
  }
  size_t workspace_bytes() const { return workspace_bytes_; }

 private:
  std::span<const TensorView> inputs_, outputs_;
  const Attributes& attributes_;
  Stream stream_;
  void* workspace_;
  size_t workspace_bytes_;
};

struct Kernel {
  DeviceType device = DeviceType::kCpu;
  std::string name = "default";                             ///< for logs, profiles and tests
  int priority = 0;                                         ///< of several kernels that can, the highest runs
  bool (*can_run)(const KernelQuery&) = nullptr;            ///< null: always
  size_t (*workspace_bytes)(const KernelQuery&) = nullptr;  ///< null: none
  /// Where memory is short the kernel may be given less than it asked for, down to this; null: it takes all.
  size_t (*least_workspace_bytes)(const KernelQuery&) = nullptr;
  void (*run)(const KernelContext&) = nullptr;
};

}  // namespace sinter
