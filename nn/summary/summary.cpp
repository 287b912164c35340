#include <algorithm>
#include <map>
#include <thread>

#include <sinter/core/op/call_observer.h>
#include <sinter/core/op/node.h>
#include <sinter/nn/summary/summary.h>
#include <sinter/ops/fill/fill.h>

namespace sinter::nn {
namespace {

/// Multiply-adds of a call, which are two operations each; 0 for ops that are not counted.
int64_t multiply_adds_of(const Op& op, const KernelQuery& query) {
  const OpDef::Flops flops = op.definition.flops;
  return flops != nullptr ? static_cast<int64_t>(flops(query.call(), query.outputs()) / 2) : 0;
}

/// Listens to the modules and ops of this thread while it lives. Ops are passed on to whoever observed them
/// before.
class Listener final : public ModuleObserver, public CallObserver {
 public:
  explicit Listener(Summary& summary, const std::vector<ModuleInfo>& modules) : summary_(summary) {
    for (size_t i = 0; i < modules.size(); ++i) rows_[modules[i].id].push_back(i);
    module_before_ = set_module_observer(this);
    call_before_ = set_call_observer(this);
  }
  ~Listener() override {
    set_call_observer(call_before_);
    set_module_observer(module_before_);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void enter(const void* id) override { callers_.push_back(id); }
  void leave(const void* id, const Tensor* output) override {
    callers_.pop_back();
    for (const size_t row : rows_[id]) {
      summary_.rows[row].called = true;
      if (output == nullptr) continue;
      summary_.rows[row].output = output->shape();
      summary_.rows[row].has_output = true;
    }
  }

  void before(const Op& op, const Kernel& kernel, const KernelQuery& query, const Stream& stream) override {
    if (call_before_ != nullptr) call_before_->before(op, kernel, query, stream);
    if (std::this_thread::get_id() != thread_) return;
    const int64_t count = multiply_adds_of(op, query);
    summary_.multiply_adds += count;
    for (size_t i = 0; i < callers_.size(); ++i) {
      const auto already = callers_.begin() + static_cast<std::ptrdiff_t>(i);
      if (std::find(callers_.begin(), already, callers_[i]) != already) continue;  // within itself
      for (const size_t row : rows_[callers_[i]]) summary_.rows[row].multiply_adds += count;
    }
  }
  void after(const Stream& stream) override {
    if (call_before_ != nullptr) call_before_->after(stream);
  }

 private:
  Summary& summary_;
  const std::thread::id thread_ = std::this_thread::get_id();
  std::map<const void*, std::vector<size_t>> rows_;  // a module that is shared has several
  std::vector<const void*> callers_;                 // outermost first
  ModuleObserver* module_before_ = nullptr;
  CallObserver* call_before_ = nullptr;
};

/// 1,234,567.
std::string with_commas(int64_t number) {
  std::string text = fmt::format("{}", number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

}  // namespace

Summary summary(const ModuleBase& model, const std::function<void()>& run) {
  const std::vector<ModuleInfo> modules = model.modules();
  Summary result;
  for (const ModuleInfo& info : modules) {
    Summary::Row& row = result.rows.emplace_back();
    row.path = info.path;
    row.type = info.type;
    row.options = info.options;
    row.depth = info.depth;
    for (const Parameter& parameter : info.parameters) row.parameters += parameter.tensor().numel();
  }
  for (const Parameter& parameter : model.parameters()) {
    const int64_t count = parameter.tensor().numel();
    result.parameters += count;
    if (!parameter.tensor().requires_grad()) result.frozen_parameters += count;
  }
  const EvalMode eval(model);
  const NoGrad no_grad;
  const Listener listener(result, modules);
  run();
  return result;
}

Summary summary(const Module& model, const TensorSpec& input) {
  const std::vector<Parameter> parameters = model.parameters();
  const Device device = parameters.empty() ? input.device : parameters.front().tensor().device();
  return summary(model, [&] { (void)model(ops::zeros(input.shape, input.dtype, device)); });
}

Summary summary(const Module& model, const Shape& input) {
  const std::vector<Parameter> parameters = model.parameters();
  TensorSpec spec{.shape = input, .dtype = DType::kFloat32, .device = {}};
  if (!parameters.empty()) spec.dtype = parameters.front().tensor().dtype();
  return summary(model, spec);
}

std::string Summary::to_string() const {
  std::vector<std::array<std::string, 4>> lines{{"module", "output", "parameters", "multiply-adds"}};
  for (const Row& row : rows) {
    const std::string name = row.path.substr(row.path.rfind('.') + 1);
    const std::string type = row.type + (row.options.empty() ? "" : "(" + row.options + ")");
    lines.push_back(
        {std::string(2 * static_cast<size_t>(row.depth), ' ') + (name.empty() ? "" : name + ": ") + type,
         row.has_output ? sinter::to_string(row.output)
         : row.called   ? ""
                        : "not called",
         row.parameters > 0 ? with_commas(row.parameters) : "",
         row.multiply_adds > 0 ? with_commas(row.multiply_adds) : ""});
  }
  std::array<size_t, 4> widths{};
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    text += fmt::format("{:<{}}  {:<{}}  {:>{}}  {:>{}}\n", line[0], widths[0], line[1], widths[1], line[2],
                        widths[2], line[3], widths[3]);
  }
  text += fmt::format("{} parameters{}, {} multiply-adds\n", with_commas(parameters),
                      frozen_parameters > 0 ? " (" + with_commas(frozen_parameters) + " frozen)" : "",
                      with_commas(multiply_adds));
  return text;
}

}  // namespace sinter::nn
