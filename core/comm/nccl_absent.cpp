// What takes NCCL's place in a build without it.
#include <sinter/core/comm/collective_backend.h>

#ifndef SINTER_WITH_NCCL

namespace sinter::comm {

std::unique_ptr<CollectiveBackend> make_nccl_backend(RankWatch&, const CommunicatorOptions& options) {
  throw_error<Unsupported>(
      "[comm] this build was made without NCCL, so that no other process can be reached from {}; build it "
      "where nccl.h and libnccl are",
      options.device);
}

}  // namespace sinter::comm

#endif
