#include <utility>

#include <sinter/nn/module/default_layout.h>

namespace sinter::nn {
namespace {

thread_local Layout present = Layout::kNCHW;

}  // namespace

Layout default_layout() {
  return present;
}

DefaultLayout::DefaultLayout(Layout layout) : before_(std::exchange(present, layout)) {}
DefaultLayout::~DefaultLayout() {
  present = before_;
}

}  // namespace sinter::nn
