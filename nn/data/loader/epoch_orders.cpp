#include <algorithm>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/dataset.h>
#include <sinter/nn/data/loader/epoch_orders.h>
#include <sinter/nn/data/sample_random.h>

namespace sinter::nn::data {
namespace {

constexpr size_t kKeptOrders = 2;  // an epoch that ends and the one whose batches are read ahead

}  // namespace

uint64_t EpochOrders::sampler_fingerprint() const {
  std::call_once(fingerprint_made_, [this] {
    if (sampler_ == nullptr) return;
    Fingerprint print;
    print.add(1);  // so that it is not 0
    for (const int64_t index : make(0)) print.add(static_cast<uint64_t>(index));
    fingerprint_ = print.value();
  });
  return fingerprint_;
}

std::vector<int64_t> EpochOrders::make(int64_t epoch) const {
  if (sampler_ == nullptr) return shuffled_indices(samples_, seed_, epoch);
  std::vector<int64_t> order = sampler_->order(seed_, epoch);
  SINTER_CHECK(static_cast<int64_t>(order.size()) == size(),
               "[data_loader] expected {} samples of the sampler, as its size() says, but got {}", size(),
               order.size());
  std::vector<uint32_t> seen(static_cast<size_t>(samples_));
  for (int64_t& index : order) {
    SINTER_CHECK(index >= 0 && index < samples_,
                 "[data_loader] expected samples from 0 to {} of the sampler but got {}", samples_ - 1,
                 index);
    constexpr uint32_t kMostRepeats = (1U << 22) - 1;  // behind them, the draws are those of earlier ones
    index += (seen[static_cast<size_t>(index)]++ & kMostRepeats) * kRepeat;
  }
  return order;
}

EpochOrder EpochOrders::of(int64_t epoch) {
  if (!shuffle_ && sampler_ == nullptr) return nullptr;
  std::shared_ptr<KnownOrder> known;
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::ranges::find_if(known_, [epoch](const auto& order) { return order->epoch == epoch; });
    if (found != known_.end()) {
      known = *found;
    } else {
      if (known_.size() == kKeptOrders) known_.erase(known_.begin());
      known = known_.emplace_back(std::make_shared<KnownOrder>());
      known->epoch = epoch;
    }
  }
  std::call_once(known->made,
                 [&] { known->order = std::make_shared<const std::vector<int64_t>>(make(epoch)); });
  return known->order;
}

}  // namespace sinter::nn::data
