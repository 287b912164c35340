// CallTracer: takes calls of ops in place of their being run. What call() knows of traces.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sinter/core/op/registry.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter {

/// Sees every call of an op on its thread, checked and inferred, before it runs.
class CallTracer {
 public:
  virtual ~CallTracer() = default;
  /// The traced outputs, of `specs`; nothing: run the call.
  virtual std::optional<std::vector<Tensor>> take(const Op& op, std::span<const Tensor> inputs,
                                                  const Attributes& attributes,
                                                  std::span<const TensorSpec> specs) = 0;
  /// `tensor` is state that outlives the trace: what it holds when the job runs counts, not what it holds
  /// now.
  virtual void keep(const Tensor& tensor, const std::string& name) = 0;
  /// Host code is about to read what `tensor`, which is not traced, holds now.
  virtual void host_reads(const Tensor& tensor) = 0;
};

/// Makes `tracer` take this thread's calls, nullptr for none, and gives the one before. It is not owned.
CallTracer* set_call_tracer(CallTracer* tracer);
CallTracer* call_tracer();

/// As long as it lives, this thread's calls run even where a job is traced: for state that is made once and
/// then belongs to its owner, such as an optimiser's momenta.
class Untraced {
 public:
  [[nodiscard]] Untraced() : previous_(set_call_tracer(nullptr)) {}
  ~Untraced() { set_call_tracer(previous_); }
  Untraced(const Untraced&) = delete;
  Untraced& operator=(const Untraced&) = delete;

 private:
  CallTracer* previous_;
};

}  // namespace sinter
