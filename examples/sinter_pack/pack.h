// Packs a folder of images into records.
#pragma once

#include "options.h"

namespace sinter_pack {

/// Packs as the options say and tells what came of it. Gives the exit code: 0, or 128 and the signal that
/// stopped it, with nothing written then. Throws sinter::Error for what cannot be read or written.
int pack(const Options& options);

}  // namespace sinter_pack
