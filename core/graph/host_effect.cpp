#include <sinter/core/graph/host_effect.h>

namespace sinter {
namespace {

thread_local HostEffectRecorder* current = nullptr;

}  // namespace

HostEffectRecorder* set_host_effect_recorder(HostEffectRecorder* recorder) {
  return std::exchange(current, recorder);
}

HostEffectRecorder* host_effect_recorder() {
  return current;
}

}  // namespace sinter
