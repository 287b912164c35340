#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/ops/batch_norm_act/batch_norm_act_call.h>
#include <sinter/ops/batch_norm_act/cudnn_norm_constraint.h>
#include <sinter/passes/norm/call_race.h>
#include <sinter/passes/norm/norm_backend_race.h>

namespace sinter::passes {
namespace {

/// What the disk remembers a pair by.
std::string problem_text(const NormPair& pair) {
  const TensorSpec& x = pair.forward->input(ops::NormActInput::kX)->spec;
  const auto& options = pair.forward->attributes.as<ops::BatchNormActOptions>();
  return fmt::format("{} {} {} {}{}", x.dtype, x.shape, to_string(options.layout),
                     to_string(options.activation),
                     pair.forward->input(ops::NormActInput::kAddend) != nullptr ? " add" : "");
}

}  // namespace

double time_norm_pair(const NormPair& pair, std::optional<int64_t> reserve_bytes) {
  CopiedCalls calls(pair.forward->outputs[0]->spec.device);
  GraphNode& forward = calls.add(*pair.forward);
  const NormPair copied{&forward, &calls.add(*pair.gradient)};
  if (reserve_bytes) move_to_cudnn(calls.graph(), copied, *reserve_bytes);
  return calls.time();
}

int64_t NormBackendRace::cudnn_version() {
  return ops::cudnn_norm_version();
}

int64_t NormBackendRace::reserve_bytes(const GraphNode& forward) {
  std::vector<const TensorSpec*> specs;
  for (const GraphUse& use : forward.inputs)
    specs.push_back(use.value != nullptr ? &use.value->spec : nullptr);
  auto options = forward.attributes.as<ops::BatchNormActOptions>();
  options.backend = ops::NormBackend::kCudnn;
  return ops::norm_reserve_bytes(specs, options);
}

NormBackendJudge::Verdict NormBackendRace::judge(const NormPair& pair) {
  if (settings::deterministic()) return {false, "bits must not depend on a measurement (deterministic)"};
  const Device device = pair.forward->outputs[0]->spec.device;
  int64_t reserve = 0;
  try {
    reserve = reserve_bytes(*pair.forward);
  } catch (const Error& error) {
    synchronize(device);  // throws if it is the GPU that is lost
    return {false, fmt::format("cuDNN refuses it: {}", error.what())};
  }
  constexpr size_t kSinter = 0, kCudnn = 1;
  const Contender contenders[] = {{"sinter", [&] { return time_norm_pair(pair, std::nullopt); }},
                                  {"cudnn", [&] { return time_norm_pair(pair, reserve); }}};
  const RaceResult result =
      race(device, fmt::format("norms, cudnn {}", cudnn_version()), problem_text(pair), contenders);
  const auto &own = result.times[kSinter], &cudnns = result.times[kCudnn];
  std::string reason = own && cudnns
                           ? fmt::format("{:.1f} us, and {:.1f} us on Sinter's kernels", *cudnns, *own)
                       : settings::autotune() ? "as measured before"
                                              : "nothing is measured (autotune)";
  return {result.winner == kCudnn, std::move(reason)};
}

}  // namespace sinter::passes
