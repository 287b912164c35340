// Reads weights in one format and writes them in another.
#pragma once

#include <optional>
#include <string>

#include "options.h"

namespace sinter_convert {

enum class Format { kSafetensors, kPytorch };

/// What the ending of a file's name says; none for another ending.
std::optional<Format> output_format(const std::string& path);

/// Converts as the options say and tells what came of it. Throws sinter::Error for what cannot be read or
/// written.
void convert(const Options& options);

}  // namespace sinter_convert
