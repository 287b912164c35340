// Module: a part of a network, with its parameters, buffers and sub-modules.
//
// A network of your own takes a few lines:
//
//   struct Net : nn::Module {
//     nn::Linear first = child("first", nn::Linear(2, 64));
//     nn::Linear second = child("second", nn::Linear(64, 3));
//     Tensor forward(const Tensor& x) const override { return second(ops::relu(first(x))); }
//   };
//   Net net;
//   Tensor logits = net(x);  // net.parameters() has first.weight, first.bias, second.weight and second.bias
//
// and a layer with a parameter of its own is as short:
//
//   struct Scale : nn::Module {
//     nn::Parameter scale = parameter("scale", Tensor::full({1}, 1.0));
//     Tensor forward(const Tensor& x) const override { return x * scale; }
//   };
#pragma once

#include <concepts>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/module/variable.h>

namespace sinter::nn {

/// Names and values, as files hold them.
using State = std::map<std::string, Tensor>;

struct LoadOptions {
  /// Names that are missing or unexpected are errors; otherwise they are only reported.
  bool strict = true;
};

/// What load_state could not use.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the module, but not in the state
  std::vector<std::string> unexpected;  ///< in the state, but not in the module
};

/// The base of all layers and models. A module is a handle, like a tensor: a copy refers to the same
/// parameters, buffers and training mode, so modules are passed and returned by value. Subclasses register
/// what they own with parameter(), buffer() and child(), and say what they compute in forward().
class Module {
 public:
  virtual ~Module() = default;
  Module(const Module&) = default;
  /// Not assignable: a member that is exchanged after child() would leave the old one registered.
  Module& operator=(const Module&) = delete;

  virtual Tensor forward(const Tensor& x) const = 0;
  Tensor operator()(const Tensor& x) const { return forward(x); }

  /// All parameters, of sub-modules too, in the order of registration, each once, named by their paths.
  std::vector<Parameter> parameters() const;
  std::vector<Buffer> buffers() const;
  std::vector<std::pair<std::string, Tensor>> named_parameters() const;
  std::vector<std::pair<std::string, Tensor>> named_buffers() const;
  /// Elements of all parameters.
  int64_t parameter_count() const;

  /// Training or evaluation mode, of sub-modules too: batch norm and dropout behave differently. Starts in
  /// training.
  void train(bool mode = true) const;
  void eval() const { train(false); }
  bool training() const;

  /// Moves parameters, buffers and gradients. Optimisers keep working if this comes before their first step.
  void to(Device device) const;
  /// Converts floating-point parameters, buffers and gradients. In a float16 or bfloat16 model, the
  /// parameters and statistics of batch norms stay float32. Throws InvalidArgument for a dtype that is not
  /// floating-point.
  void to(DType dtype) const;
  /// Prepares for training in mixed precision: parameters become float32 and get working copies in float16 or
  /// bfloat16, which modules compute with; those of batch norms, and buffers, are float32 only. state() and
  /// load_state() speak of the float32 values, and optimisers update both. Source: P. Micikevicius et al.,
  /// "Mixed precision training", ICLR 2018. Throws InvalidArgument for any other dtype.
  void to_mixed(DType dtype) const;
  /// Freezes or thaws all parameters.
  void set_requires_grad(bool value) const;
  void zero_grad() const;

  /// Copies of all parameters and buffers in PyTorch's names and layout (OIHW), whatever layout the model
  /// works in.
  State state() const;
  /// Overwrites parameters and buffers in place, converting layout, device and floating-point dtype. Throws
  /// InvalidArgument, and changes nothing, if shapes or kinds of dtypes differ or, when strict, unless the
  /// names match; the message lists all of them. `num_batches_tracked` may be missing, as in old files.
  LoadReport load_state(const State& state, const LoadOptions& options = {}) const;

 protected:
  Module();

  /// Registers a leaf that requires a gradient. `value` is copied, and is in canonical layout (OIHW).
  Parameter parameter(const std::string& name, const Tensor& value, const VariableOptions& options = {});
  /// Registers a tensor that is saved but has no gradient.
  Buffer buffer(const std::string& name, const Tensor& value, const VariableOptions& options = {});
  /// Registers a sub-module and returns it. Names must be new, not empty and without a dot.
  template <std::derived_from<Module> M>
  M child(const std::string& name, M module) {
    add_child(name, module);
    return module;
  }

 private:
  struct Node;

  void add_child(const std::string& name, const Module& module);

  std::shared_ptr<Node> node_;
};

/// Any module, held by value: for members and containers whose type is chosen at run time.
/// `AnyModule activation = use_prelu ? AnyModule(PReLU(64)) : AnyModule(ReLU());`
class AnyModule final : public Module {
 public:
  template <std::derived_from<Module> M>
  requires(!std::same_as<M, AnyModule>) AnyModule(M module)  // NOLINT: any module is one
      : Module(module), held_(std::make_shared<const M>(std::move(module))) {}

  Tensor forward(const Tensor& x) const override { return held_->forward(x); }

 private:
  std::shared_ptr<const Module> held_;
};

/// Splits parameters for weight decay: `decay` are those of rank 2 and more (filters, matrices), `no_decay`
/// the others (biases, and scales, shifts and slopes of norms and activations), which are better left alone.
/// Source: T. He et al., "Bag of tricks for image classification with convolutional neural networks", CVPR
/// 2019, 3.1.
struct DecaySplit {
  std::vector<Parameter> decay;
  std::vector<Parameter> no_decay;
};
DecaySplit split_decay(const std::vector<Parameter>& parameters);

/// The same parameters with `prefix` before their names: to train two modules with one optimiser.
std::vector<Parameter> with_prefix(const std::string& prefix, const std::vector<Parameter>& parameters);

}  // namespace sinter::nn
