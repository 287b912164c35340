// One call of an op for the sweep: its inputs, what it computes, and the bytes that it must move at least.
#include "sweep_cases.h"

namespace sinter::bench {
namespace {

Json described(const SweepCase& c) {
  return {{"suite", "sweep"},
          {"case", to_string(c)},
          {"dtype", std::string(to_string(c.dtype))},
          {"layout", c.has_layout ? std::string(to_string(c.layout)) : ""},
          {"family", c.family},
          {"kind", c.kind},
          {"direction", c.direction},
          {"shape", c.shape},
          {"axes", c.axes},
          {"vectors", c.vectors},
          {"two_gradients", c.two_gradients},
          {"bytes", c.bytes()}};
}

}  // namespace

std::vector<Item> sweep_items(const SweepDraw& draw) {
  std::vector<Item> items;
  for (const SweepCase& c : draw_cases(draw)) {
    items.push_back({described(c), [c](Device device) { return make_call(c, device); }});
  }
  return items;
}

}  // namespace sinter::bench
