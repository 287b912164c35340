// Effects on the host: what a forward pass changes there besides computing tensors.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <sinter/core/tensor/tensor.h>

namespace sinter {

struct HostEffect {
  std::function<void()> run;
  /// It belongs to the call before it that changed this memory in place, and is had only where that call is.
  std::shared_ptr<const Storage> changed;
  /// The tensor that it writes, if it writes one: no call of the pass may read that, as it would see it too
  /// early.
  std::shared_ptr<const Storage> written = nullptr;
};

/// Takes the effects of a forward pass that is recorded, to repeat them whenever the pass is repeated without
/// its code being run.
class HostEffectRecorder {
 public:
  virtual ~HostEffectRecorder() = default;
  virtual void record(HostEffect effect) = 0;
};

/// Makes `recorder` take the effects of this thread instead of their being run, nullptr ends that; gives the
/// one before. It is not owned.
HostEffectRecorder* set_host_effect_recorder(HostEffectRecorder* recorder);
HostEffectRecorder* host_effect_recorder();

/// Runs `effect` now, or hands it to the thread's recorder, for the call that has just changed `changed` in
/// place: a repeated pass that fails before this call leaves the effect out, as this code would. Modules
/// change counters in this way and in no other, so that whoever replays a forward pass can do so too:
/// `host_effect(running_mean.tensor(), [count = batches.tensor()] { ++*count.data<int64_t>(); },
/// batches.tensor());` `written` is the tensor that the effect writes, if any; where ops read it elsewhere,
/// the effect also calls `count.storage()->bump_version()`.
template <class Effect>
void host_effect(const Tensor& changed, Effect&& effect, const Tensor& written = {}) {
  if (HostEffectRecorder* const recorder = host_effect_recorder()) [[unlikely]] {
    recorder->record(
        {std::forward<Effect>(effect), changed.storage(), written.defined() ? written.storage() : nullptr});
  } else {
    effect();
  }
}

}  // namespace sinter
