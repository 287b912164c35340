#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include <sinter/passes/passes.h>
#include <sinter/passes/pipeline.h>
#include <sinter/passes/verify.h>

namespace sinter::passes {
namespace {

const Pass kForwardPasses[] = {
    {"dead_code", "calls whose results nobody uses go", true, remove_dead_code},
    {"common_subexpressions", "equal calls on equal values are made once", true, merge_common_subexpressions},
    {"fold_normalization", "norms with known statistics go into the convolution before (inference)", false,
     fold_normalization},
    {"fold_input_normalization", "norms with known statistics go into the convolutions behind (inference)",
     false, fold_input_normalization},
    {"mixed_precision", "ops that allow it compute in 16 bit", false, make_mixed},
    {"channels_last", "images are turned to the layout that is asked for", false, turn_layout},
    {"fuse_normalization", "normalisations take in sums and activations behind them", false,
     fuse_normalization},
    {"fuse_convolution", "convolutions take in bias, sum and activation behind them (inference)", false,
     fuse_convolution},
};

const Pass kStepPasses[] = {
    {"step_common_subexpressions", "equal calls of the whole step are made once", true,
     merge_common_subexpressions},
    {"step_dead_code", "gradients that nobody asks for go", true, remove_dead_code},
    {"sum_gradients", "sums of gradients are taken by those who read them", false, sum_gradients},
    {"choose_norm_backend", "fused normalisations go to cuDNN where it is faster", false,
     choose_norm_backend},
    {"convolution_sums", "convolutions give the sums for the norms behind them where that is faster", false,
     sum_in_convolutions},
    {"gradient_buckets", "gradients are summed over ranks in buckets, beside what is computed meanwhile",
     false, bucket_gradients},
    {"recompute", "under a limit of memory, results are computed again instead of kept", false, recompute},
};

std::vector<std::string> names_of_all() {
  std::vector<std::string> names;
  for (const Pass& pass : kForwardPasses) names.emplace_back(pass.name);
  for (const Pass& pass : kStepPasses) names.emplace_back(pass.name);
  return names;
}

void check_name(const std::string& name) {
  const std::vector<std::string> known = names_of_all();
  if (name == "all" || std::ranges::find(known, name) != known.end()) return;
  std::string list;
  for (const std::string& each : known) list += (list.empty() ? "" : ", ") + each;
  throw_error<InvalidArgument>("[passes] there is no pass '{}' to leave out; there are {} and all", name,
                               list);
}

/// "dumps/train3" for the third graph of this kind that this process dumps there.
std::string numbered_folder(const std::string& folder, const std::string& kind) {
  static std::mutex mutex;
  static auto& numbers = *new std::map<std::string, int>;
  const std::lock_guard lock(mutex);
  const std::string path = (std::filesystem::path(folder) / kind).string();
  return path + std::to_string(++numbers[path]);
}

}  // namespace

std::span<const Pass> forward_passes() {
  return kForwardPasses;
}
std::span<const Pass> step_passes() {
  return kStepPasses;
}

Pipeline::Pipeline(const PipelineOptions& options, std::string kind)
    : without_(options.without),
      dump_folder_(options.dump_folder),
      kind_(std::move(kind)),
      verifies_(options.verify || options.verify_calls),
      verifies_calls_(options.verify_calls) {
  if (const char* const given = std::getenv("SINTER_PASSES"); given != nullptr) {
    std::string text(given);
    std::ranges::replace(text, ',', ' ');
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      SINTER_CHECK(
          word.size() > 1 && word[0] == '-',
          "[passes] expected names of passes to leave out, each behind a '-', in SINTER_PASSES but got '{}'",
          word);
      without_.push_back(word.substr(1));
    }
  }
  for (const std::string& name : without_) check_name(name);
  if (const char* const folder = std::getenv("SINTER_DUMP"); folder != nullptr && dump_folder_.empty()) {
    dump_folder_ = folder;
  }
  if (const char* const given = std::getenv("SINTER_VERIFY"); given != nullptr) {
    const std::string text(given);
    SINTER_CHECK(text == "0" || text == "1" || text == "deep" || text.empty(),
                 "[passes] expected SINTER_VERIFY=0, 1 or deep but got '{}'", text);
    verifies_ = verifies_ || text == "1" || text == "deep";
    verifies_calls_ = verifies_calls_ || text == "deep";
  }
}

Pipeline::~Pipeline() = default;

void Pipeline::verify_on(std::span<const Tensor> inputs, Device device) {
  if (verifies_) verifier_ = std::make_unique<Verifier>(std::vector(inputs.begin(), inputs.end()), device);
}

bool Pipeline::is_on(const Pass& pass) const {
  return std::ranges::none_of(without_,
                              [&](const std::string& name) { return name == "all" || name == pass.name; });
}

void Pipeline::run(std::span<const Pass> passes, Graph& graph, PassContext& context) {
  if (verifier_ != nullptr) verifier_->start(graph, context);
  for (const Pass& pass : passes) {
    if (!is_on(pass)) continue;
    const auto start = std::chrono::steady_clock::now();
    context.report = {};
    context.report.name = pass.name;
    context.report.nodes_before = graph.node_count();
    try {
      pass.run(graph, context);
      graph.verify();
      context.report.milliseconds =
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
      if (verifier_ != nullptr) verifier_->check(pass, graph, context);
    } catch (const InternalError& error) {
      throw_error<InternalError>("[passes] {}: {}", pass.name, error.what());
    }
    context.report.nodes_after = graph.node_count();
    context.report.verified = verifier_ != nullptr;
    reports_.push_back(context.report);
    dump(graph, pass.name);
  }
}

void Pipeline::dump(const Graph& graph, const std::string& name) {
  history_.add(name, graph);
  if (dump_folder_.empty()) return;
  if (dumps_ == 0) dump_folder_ = numbered_folder(dump_folder_, kind_);
  std::error_code error;
  std::filesystem::create_directories(dump_folder_, error);
  const std::string stem = fmt::format("{:02}_{}", dumps_++, name);
  for (const auto& [suffix, text] :
       {std::pair{".txt", graph.to_string()}, std::pair{".dot", graph.to_dot()}}) {
    const std::filesystem::path path = std::filesystem::path(dump_folder_) / (stem + suffix);
    std::ofstream file(path);
    file << text;
    if (!file.flush()) throw_error<IoError>("[passes] {} cannot be written", path.string());
  }
}

}  // namespace sinter::passes
