// Reads weights in one format and writes them in another.
#pragma once

#include "options.h"

namespace sinter_convert {

/// Converts as the options say and tells what came of it. Throws sinter::Error for what cannot be read or
/// written.
void convert(const Options& options);

}  // namespace sinter_convert
