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
//
// A network with other inputs or outputs names its signature:
//
//   struct Siamese : nn::ModuleOf<std::pair<Tensor, Tensor>(const Tensor&, const Tensor&)> {
//     nn::ResNet trunk = child("trunk", nn::resnet18());
//     std::pair<Tensor, Tensor> forward(const Tensor& a, const Tensor& b) const override {
//       return {trunk.features(a), trunk.features(b)};
//     }
//   };
#pragma once

#include <algorithm>
#include <concepts>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include <sinter/autograd/hook.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/module/clone_scope.h>
#include <sinter/nn/module/variable.h>

namespace sinter::nn {

/// Names and values, as files hold them.
using State = std::map<std::string, Tensor>;

struct LoadOptions {
  /// Names that are missing or unexpected are errors; otherwise they are only reported.
  bool strict = true;
  /// Names that begin with one of these are left as they are, on both sides: {"fc."} for a head of another
  /// size.
  std::vector<std::string> skip = {};

  bool skips(std::string_view name) const {
    return std::ranges::any_of(skip, [name](const std::string& prefix) { return name.starts_with(prefix); });
  }
};

/// What load_state could not use.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the module, but not in the state
  std::vector<std::string> unexpected;  ///< in the state, but not in the module
};

/// A module within another: one row of ModuleBase::modules().
struct ModuleInfo {
  std::string path;                   ///< "layer1.0.conv1"; empty for the module itself
  std::string type;                   ///< "Conv2d"
  std::string options;                ///< "3, 64, kernel 7x7, stride 2"; what the module said of itself
  int depth = 0;                      ///< 0 for the module itself
  const void* id = nullptr;           ///< the same for all copies of one module
  std::vector<Parameter> parameters;  ///< its own, without those of sub-modules
  std::vector<Buffer> buffers;
};

class ModuleCall;

/// What all layers and models have in common, whatever they take and give. A module is a handle, like a
/// tensor: a copy refers to the same parameters, buffers and training mode, so modules are passed and
/// returned by value (nn::clone makes an independent one). Subclasses register what they own with
/// parameter(), buffer() and child().
class ModuleBase {
 public:
  virtual ~ModuleBase() = default;
  ModuleBase(const ModuleBase& other);
  /// Not assignable: a member that is exchanged after child() would leave the old one registered.
  ModuleBase& operator=(const ModuleBase&) = delete;

  /// All parameters, of sub-modules too, in the order of registration, each once, named by their paths.
  std::vector<Parameter> parameters() const;
  std::vector<Buffer> buffers() const;
  std::vector<std::pair<std::string, Tensor>> named_parameters() const;
  std::vector<std::pair<std::string, Tensor>> named_buffers() const;
  /// Elements of all parameters.
  int64_t parameter_count() const;
  /// This module and all below it, depth first, in the order of registration.
  std::vector<ModuleInfo> modules() const;
  /// The layout of the images that it takes: as to(Layout) said, and before that its own or, in a module made
  /// of others, that of the first that has one; else kNCHW. What forward() goes by.
  Layout layout() const;

  /// Training or evaluation mode, of sub-modules too: batch norm and dropout behave differently. Starts in
  /// training. Frozen modules stay in evaluation mode.
  void train(bool mode = true) const;
  void eval() const { train(false); }
  bool training() const;

  /// Moves parameters, buffers and gradients. Optimisers keep working if this comes before their first step.
  void to(Device device) const;
  /// Converts floating-point parameters, buffers and gradients. In a float16 or bfloat16 model, the
  /// parameters and statistics of batch norms stay float32. Throws InvalidArgument for a dtype that is not
  /// floating-point.
  void to(DType dtype) const;
  /// Makes all of it work in `layout`, on images (N, C, H, W) or (N, H, W, C): filters are permuted, with
  /// their gradients, and modules go by layout(). kNHWC is the faster one on a GPU. At any time: state()
  /// stays the same, parameters stay the same handles, optimisers, EMA and Lookahead turn what they keep of
  /// them, and jobs trace the model again. A ChangeLayout in it then has nothing left to change. Results that
  /// are images come in that layout too. Not while another thread calls the module.
  void to(Layout layout) const;
  /// Prepares for training in mixed precision: parameters become float32 and get working copies in float16 or
  /// bfloat16, which modules compute with; those of batch norms, and buffers, are float32 only. state() and
  /// load_state() speak of the float32 values, and optimisers update both. Source: P. Micikevicius et al.,
  /// "Mixed precision training", ICLR 2018. Throws InvalidArgument for any other dtype.
  void to_mixed(DType dtype) const;
  /// Takes all whose names begin with `prefix` out of training, and puts it back: "" is the whole model,
  /// "layer1." a member with all below it, "fc.weight" a parameter. Frozen parameters have no gradients, so
  /// that optimisers leave them and their momenta alone; frozen modules are in evaluation mode whatever
  /// train() says, so that batch norms keep their statistics. unfreeze() gives gradients to those parameters
  /// alone from which freeze() took them. Throws InvalidArgument if no name begins so.
  void freeze(std::string_view prefix = {}) const;
  void unfreeze(std::string_view prefix = {}) const;
  /// Whether the gradients of all parameters are computed; leaves the modes as they are, unlike freeze().
  void set_requires_grad(bool value) const;
  void zero_grad() const;

  /// Copies of all parameters and buffers in PyTorch's names and layout (OIHW), whatever layout the model
  /// works in.
  State state() const;
  /// Overwrites parameters and buffers in place, converting layout, device and floating-point dtype. Throws
  /// InvalidArgument, and changes nothing, if shapes or kinds of dtypes differ or, when strict, unless the
  /// names match; the message lists all of them. `num_batches_tracked` may be missing, as in old files. To
  /// keep a head of another size as it is, skip its names: `model.load_state(state, {.skip = {"fc."}})`.
  LoadReport load_state(const State& state, const LoadOptions& options = {}) const;

 protected:
  ModuleBase();

  /// Registers a leaf that requires a gradient. `value` is copied, and is in canonical layout (OIHW).
  Parameter parameter(const std::string& name, const Tensor& value, const VariableOptions& options = {});
  /// Registers a tensor that is saved but has no gradient.
  Buffer buffer(const std::string& name, const Tensor& value, const VariableOptions& options = {});
  /// Registers a sub-module and returns it. Names must be new, not empty and without a dot. A module with
  /// parameters, buffers or a training mode that forward() calls without its being registered is an
  /// InvalidArgument at that call: it would be neither trained nor saved.
  template <std::derived_from<ModuleBase> M>
  M child(const std::string& name, M module) {
    add_child(name, module);
    return module;
  }
  /// A module that forward() calls but that belongs to somebody else, such as the teacher of a distillation:
  /// it is not trained, moved or saved with this one.
  template <std::derived_from<ModuleBase> M>
  M borrow(M module) {
    add_borrowed(module);
    return module;
  }
  /// Says in which layout this module starts to read and give images, so that neighbours in another are
  /// noticed.
  void works_in(Layout layout) { works_in(layout, layout); }
  void works_in(Layout input, Layout output);
  /// The same without a look at the neighbours, for a module that takes other things than images too.
  void starts_in(Layout layout);
  /// The layout of the images that it gives; another than layout() only if works_in said so.
  Layout output_layout() const;
  /// What a printed model shows of this module between parentheses: "3, 64, kernel 7x7". Without it, the
  /// shapes of its own parameters.
  void describe(std::string options);
  /// For containers that call their members one after the other: throws InvalidArgument if `next` works in
  /// another layout than the members so far give.
  void check_next(const ModuleBase& next) const;
  /// Takes the name of `module`, whose handle this is.
  void stand_for(const ModuleBase& module);
  /// Hooks of whatever type the calls of this module have; they live as long as what is returned.
  Hook add_forward_hook(std::shared_ptr<void> hook) const;
  bool has_forward_hooks() const;
  std::vector<std::shared_ptr<void>> forward_hooks() const;

 private:
  friend class ModuleCall;
  friend class EvalMode;
  friend class ModuleSnapshot;
  struct Node;

  void add_child(const std::string& name, const ModuleBase& module);
  void add_borrowed(const ModuleBase& module);

  std::shared_ptr<Node> node_;
};

/// Watches the calls of modules on one thread; see set_module_observer.
class ModuleObserver {
 public:
  virtual ~ModuleObserver() = default;
  /// `id` is that of ModuleInfo.
  virtual void enter(const void* id) = 0;
  /// `output` is null unless the module gives one tensor, and after an exception.
  virtual void leave(const void* id, const Tensor* output) = 0;
  /// Somebody asks for its mode.
  virtual void ask_mode(const void* /*id*/) {}
};

/// Installs `observer` for this thread, nullptr for none, and gives the one before. It is not owned.
ModuleObserver* set_module_observer(ModuleObserver* observer);

/// Lives as long as a call of a module: notices modules that are called but not registered.
class ModuleCall {
 public:
  /// Throws InvalidArgument if the module owns parameters or buffers and no module in whose call this one is
  /// has it among its own or borrowed ones.
  explicit ModuleCall(const ModuleBase& module);
  ~ModuleCall();
  ModuleCall(const ModuleCall&) = delete;
  ModuleCall& operator=(const ModuleCall&) = delete;

  /// Ends the call and tells the observer of its result.
  void finish(const Tensor& output);

 private:
  friend class ModuleBase;
  /// Tells the observer. Throws InvalidArgument if `module` is being called and not registered, so that
  /// nobody sets its mode.
  static void ask_mode(const ModuleBase& module);

  const ModuleBase& module_;
  ModuleCall* const outer_;
  bool registered_ = true;
  bool finished_ = false;
};

/// A module of any signature: the base of layers and models that take or give something else than a tensor.
/// `Signature` is that of forward(), as of std::function.
template <class Signature>
class ModuleOf;

template <class Result, class... Inputs>
class ModuleOf<Result(Inputs...)> : public ModuleBase {
 public:
  /// What the module computes. Call the module itself, not this: model(x).
  virtual Result forward(Inputs... inputs) const = 0;

  Result operator()(Inputs... inputs) const {
    ModuleCall call(*this);
    if constexpr (std::same_as<Result, Tensor>) {
      Tensor result = with_hooks(forward(std::forward<Inputs>(inputs)...));
      call.finish(result);
      return result;
    } else {
      return with_hooks(forward(std::forward<Inputs>(inputs)...));
    }
  }

  /// Calls `hook` with this module and what forward() gave whenever the module is called, through any of its
  /// handles, while the Hook that is returned lives; what the hook gives is the result of the call. Several
  /// hooks run in the order in which they were registered. They belong to the call: modules with parameters
  /// that they call must be among the module's own or borrowed ones. A job traces them, and follows when one
  /// is added or taken away. A clone has none. Not while another thread calls the module.
  ///
  ///   Hook hook = model.layer4.register_forward_hook([&](const auto&, Tensor y) { return features = y; });
  Hook register_forward_hook(std::function<Result(const ModuleOf& module, Result output)> hook) const {
    using ForwardHook = std::function<Result(const ModuleOf&, Result)>;
    SINTER_CHECK(hook != nullptr, "[register_forward_hook] expected a function but got none");
    return add_forward_hook(std::make_shared<ForwardHook>(std::move(hook)));
  }

 private:
  Result with_hooks(Result result) const {
    if (!has_forward_hooks()) [[likely]]
      return result;
    using ForwardHook = std::function<Result(const ModuleOf&, Result)>;
    for (const auto& hook : forward_hooks())
      result = (*static_cast<const ForwardHook*>(hook.get()))(*this, std::move(result));
    return result;
  }
};

/// The base of most layers and models: a tensor in, a tensor out.
using Module = ModuleOf<Tensor(const Tensor&)>;

/// As long as it lives, a model and its sub-modules are in evaluation mode for the thread that made it, as if
/// by eval(). The modes that they have, and what other threads see of them, stay as they are.
class EvalMode {
 public:
  [[nodiscard]] explicit EvalMode(const ModuleBase& model);
  ~EvalMode();
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  friend struct ModuleBase::Node;
  static bool covers(const ModuleBase::Node* node);

  std::map<const ModuleBase::Node*, std::shared_ptr<const ModuleBase::Node>> nodes_;  // held
  const EvalMode* outer_;
};

/// An independent copy: parameters, buffers and modes are those of `module` at this moment, gradients are not
/// copied. It is made by the copy constructor of M, within which members that are modules, parameters,
/// buffers or containers of them by value come out independent; what a module of your own holds by pointer
/// stays shared, unless its copy constructor sees to that.
template <std::derived_from<ModuleBase> M>
M clone(const M& module) {
  const detail::CloneScope scope;
  return M(module);
}

/// The tree of modules with their types and options, one a line.
std::string to_string(const ModuleBase& module);
std::ostream& operator<<(std::ostream& stream, const ModuleBase& module);

/// Any module, held by value: for members and containers whose type is chosen at run time.
/// `AnyModule activation = use_prelu ? AnyModule(PReLU(64)) : AnyModule(ReLU());`
class AnyModule final : public Module {
 public:
  template <std::derived_from<Module> M>
  requires(!std::same_as<M, AnyModule>) AnyModule(M module)  // NOLINT: any module is one
      : Module(module), copy_(&AnyModule::copy<M>), held_(std::make_shared<const M>(std::move(module))) {
    stand_for(*held_);
  }
  AnyModule(const AnyModule& other)
      : Module(other),
        copy_(other.copy_),
        held_(detail::CloneScope::active() ? copy_(*other.held_) : other.held_) {}

  Tensor forward(const Tensor& x) const override { return held_->forward(x); }

 private:
  template <class M>
  static std::shared_ptr<const Module> copy(const Module& module) {
    return std::make_shared<const M>(static_cast<const M&>(module));
  }

  std::shared_ptr<const Module> (*copy_)(const Module&);
  std::shared_ptr<const Module> held_;
};

/// The same parameters with `prefix` before their names: to train two modules with one optimiser.
std::vector<Parameter> add_prefix(const std::string& prefix, const std::vector<Parameter>& parameters);

/// What `state` has under names that begin with `prefix`, under the rest of those names: "module." of a file
/// that was saved from PyTorch's DataParallel, "backbone." for a part of a larger model.
State strip_prefix(const std::string& prefix, const State& state);

}  // namespace sinter::nn

/// Modules print as to_string() has them.
template <std::derived_from<sinter::nn::ModuleBase> M>
struct fmt::formatter<M, char> : sinter::detail::TextFormatter {
  template <class Context>
  auto format(const M& module, Context& context) const {
    return write(sinter::nn::to_string(module), context);
  }
};
