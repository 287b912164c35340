// OnnxGraph: turns a traced graph into nodes and constants of ONNX, by the translations of its ops.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <sinter/nn/export/onnx.h>
#include <sinter/nn/export/onnx_file.h>
#include <sinter/nn/export/onnx_trace.h>

namespace sinter::nn {

class OnnxGraph {
 public:
  /// Both must outlive it.
  OnnxGraph(const OnnxTrace& trace, const OnnxOptions& options);

  /// Throws as export_onnx does. To be called once.
  OnnxModel build();

  // ---- for OnnxCall

  /// The name of a value; constants are put into the model by this.
  const std::string& name_of(const GraphValue& value, const std::string& scope);
  /// The value of a constant, as it is in the model, or undefined.
  Tensor constant(const GraphValue& value) const;
  /// What a constant is called: a parameter's name; empty for others.
  std::string constant_name(const GraphValue& value) const;
  /// -1 for an extent that goes with the batch.
  OnnxInts extents(const GraphValue& value) const;
  /// The name of an int64 vector with the extents of a value, whatever the batch.
  std::string shape_of(const GraphValue& value, const std::string& scope);
  std::vector<std::string> add_node(const std::string& scope, const char* type,
                                    std::vector<std::string> inputs, size_t outputs,
                                    std::vector<OnnxAttribute> attributes);
  /// One without a name of its own, and one with: it is numbered if another constant has it.
  std::string add_constant(const Tensor& value, const std::string& scope);
  std::string add_initializer(const Tensor& value, const std::string& name);
  std::string add_number(double value, DType dtype);
  std::string add_ints(const OnnxInts& values);
  void set_name(const GraphValue& value, const std::string& name) { names_[&value] = name; }

 private:
  /// A value that no input decides.
  struct Constant {
    Tensor value;
    std::string name;
  };

  bool is_fixed(const GraphValue& value) const { return !trace_.per_batch.contains(&value); }
  bool can_be_evaluated(const GraphNode& node) const;
  void evaluate(const GraphNode& node);
  void find_constants();
  void check_translations() const;
  void add_inputs();
  void add_preprocessing(const GraphValue& input, const std::string& name);
  void add_outputs();
  OnnxValue described(const GraphValue& value, std::string name) const;
  std::string unique(const std::string& wanted);
  std::vector<std::string> names_for(const std::vector<std::string>& given, const std::string& kind,
                                     size_t count) const;

  const OnnxTrace& trace_;
  const OnnxOptions& options_;
  OnnxModel model_;
  std::vector<const GraphNode*> written_;  // the nodes that are no constants
  std::map<const GraphValue*, Constant> constants_;
  std::map<const GraphValue*, std::string> names_;
  std::set<std::string> used_;      // names of values and nodes
  std::set<std::string> reserved_;  // names of parameters and buffers
  std::map<std::tuple<const Storage*, size_t, std::vector<int64_t>, DType>, std::string> initializers_;
  std::map<std::pair<std::string, DType>, std::string> numbers_;
  std::map<OnnxInts, std::string> ints_;
  std::string batch_;  // the name of an int64 vector of one element, the size of the batch
  std::string batch_input_;
};

}  // namespace sinter::nn
