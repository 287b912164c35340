#include "run/damaged_images.h"

#include <utility>

#include "common/console.h"
#include "common/text.h"

namespace sinter::examples {

std::shared_ptr<const nn::data::Dataset> DamagedImages::watch(
    std::string name, std::shared_ptr<const nn::data::Dataset> dataset, int64_t most) {
  auto sound = std::make_shared<const nn::data::SkipDamaged>(std::move(dataset), most);
  watched_.push_back({std::move(name), sound});
  return sound;
}

void DamagedImages::tell() {
  for (Watched& watched : watched_) {
    const nn::data::SkipDamaged::Damage damage = watched.dataset->damage();
    if (damage.count == watched.told) continue;
    watched.told = damage.count;
    say("damaged: {} of {} so far, each replaced by the next sound one; the first: {}\n", damage.count,
        counted(watched.dataset->size(), watched.name + " image"), damage.first);
  }
}

int64_t DamagedImages::count() const {
  int64_t count = 0;
  for (const Watched& watched : watched_) count += watched.dataset->damage().count;
  return count;
}

}  // namespace sinter::examples
