// What all ranks of a run must begin with, compared before the first step: a rank with other data or options
// would be waited for in vain.
#pragma once

#include <string>
#include <vector>

#include <sinter/core/comm/communicator.h>
#include <sinter/nn/data/normalize.h>

namespace sinter::examples {

/// Something that is the same on all ranks, and where this rank has it from, for the message.
struct Fact {
  std::string what;         // "--lr"
  std::string value;        // "0.1"
  std::string source = {};  // "/data/faces"; may differ
};

/// Throws CommunicationError on all ranks unless their facts are alike: names the first that is not, the
/// first rank that differs from rank 0, and both values with their sources. All ranks call it.
void check_same_start(const Communicator& ranks, const std::vector<Fact>& facts);

/// That of rank 0: decoders of other versions may differ in the last bits.
void share(nn::data::Normalization& normalization, const Communicator& ranks);

}  // namespace sinter::examples
