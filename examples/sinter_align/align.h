// Aligns the faces of a folder, or tells whether they are aligned.
#pragma once

#include "options.h"

namespace sinter_align {

/// Aligns as the options say and tells what came of it. Gives the exit code: 0, or 128 and the signal that
/// stopped it, with the faces that were finished written. Throws sinter::Error for what cannot be read or
/// written, and for the first damaged image or refused face beyond those to put up with.
int align(const Options& options);

/// Tells how far the points are from the template: as they are, and at best. Throws as align().
int check(const Options& options);

}  // namespace sinter_align
