// PixelFold by its definition, for tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sinter/core/cuda/cudnn/conv_staging.h>

namespace sinter::cuda {

/// Calls visit(plain element, staged element) for all elements that both arrays hold.
template <class Visit>
void for_each_element(const PixelFold& f, Visit visit) {
  const int64_t line = f.plain[1] * f.channels;
  for (int64_t pixel = 0; pixel < f.staged_pixels(); ++pixel) {
    const int64_t n = pixel / (f.staged[0] * f.staged[1]), i = pixel / f.staged[1] % f.staged[0],
                  j = pixel % f.staged[1];
    for (int64_t u = 0; u < f.window[0]; ++u) {
      for (int64_t e = 0; e < f.run(); ++e) {
        const int64_t row = f.step[0] * i - f.lead[0] + u;
        const int64_t place = (f.step[1] * j - f.lead[1]) * f.channels + e;
        if (row < 0 || row >= f.plain[0] || place < 0 || place >= line) continue;
        visit(static_cast<size_t>((n * f.plain[0] + row) * line + place),
              static_cast<size_t>(pixel * f.staged_channels + u * f.run() + e));
      }
    }
  }
}

}  // namespace sinter::cuda
