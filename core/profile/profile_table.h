// The table of a profile.
#pragma once

#include <string>
#include <vector>

#include <sinter/core/profile/profile.h>

namespace sinter {

/// A line for each of the first `most` rows, one for the others and one of totals.
std::string to_table(const std::vector<OpProfile::Row>& rows, size_t most);

}  // namespace sinter
