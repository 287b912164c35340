// The steps of random networks that change buffers in the middle of forward.
#include "nn/job/changing_modules.h"
#include "nn/job/network_builder.h"

namespace sinter::nn::testing {

void NetworkBuilder::changing_step() {
  switch (maker_.integer(0, 5)) {
    case 0:
      return counter();
    case 1:
    case 2:
      return watched_norm();
    default:
      return recurrent();
  }
}

void NetworkBuilder::recurrent() {
  const size_t v = any();
  const auto drawn = [&](auto count) {
    return static_cast<decltype(count)>(maker_.integer(0, static_cast<int64_t>(count) - 1));
  };
  RecurrentPlan plan{.read = drawn(RecurrentPlan::Read::kCount),
                     .change = drawn(RecurrentPlan::Change::kCount),
                     .use = drawn(RecurrentPlan::Use::kCount),
                     .early = maker_.chance(0.5),
                     .late = maker_.chance(0.5),
                     .again = maker_.chance(0.5),
                     .half = maker_.chance(0.2),
                     .no_grad = maker_.chance(0.3)};
  if (!plan.early && !plan.late) plan.late = plan.again = true;
  const std::string text =
      fmt::format("recurrent (read {}, change {}, use {},{}{}{}{}{})", static_cast<int>(plan.read),
                  static_cast<int>(plan.change), static_cast<int>(plan.use), plan.early ? " early" : "",
                  plan.late ? " late" : "", plan.again ? " again" : "", plan.half ? " half" : "",
                  plan.no_grad ? " while NoGrad" : "");
  const Recurrent module(shape_of(images_[v]), images_[v].layout, plan);
  const size_t once = apply(v, images_[v], text, module);
  if (maker_.chance(0.2)) {
    const Recurrent member = module;
    const size_t again = add(images_[v], fmt::format("the same recurrent module of v{}", once),
                             [=](const auto& values) { return member(values[once]); });
    sum(v, again);
  }
}

void NetworkBuilder::watched_norm() {
  const size_t v = any();
  const StatisticsPlan plan{.before = maker_.chance(0.5),
                            .behind = maker_.chance(0.7),
                            .as_copy = maker_.chance(0.5),
                            .twice = maker_.chance(0.3),
                            .moves_shift = maker_.chance(0.4),
                            .activates = maker_.chance(0.7),
                            .pools = maker_.chance(0.4)};
  const std::string text = fmt::format("watched norm ({}{}{}{}{}{}{})", plan.before ? " before" : "",
                                       plan.behind ? " behind" : "", plan.as_copy ? " copy" : "",
                                       plan.twice ? " twice" : "", plan.moves_shift ? " moves shift" : "",
                                       plan.activates ? " relu" : "", plan.pools ? " pool" : "");
  // A convolution before it is one that inference could fold it into.
  const size_t x = maker_.chance(0.5) ? convolution(v, images_[v].channels, true) : v;
  apply(x, images_[x], text, WatchedNorm(images_[x].channels, images_[x].layout, plan));
}

void NetworkBuilder::counter() {
  const size_t v = any();
  const bool before = maker_.chance(0.5);
  apply(v, images_[v], before ? "counter, before" : "counter, behind",
        Counter(before, !before || maker_.chance(0.5)));
}

}  // namespace sinter::nn::testing
