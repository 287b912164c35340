// The connections between the ranks of a job that Gloo sums over. Internal to core/comm.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <sinter/core/comm/collective_backend.h>
#include <sinter/core/comm/host/gloo_waits.h>

namespace sinter::comm {

/// Sockets of this process: file and inode, by which one is known again after its file was closed.
using Sockets = std::set<std::pair<int, uint64_t>>;

struct GlooConnections {
  std::shared_ptr<WakeableMesh> mesh;
  Sockets sockets;
};

/// Connects every rank with every other and makes sure of who is there. All ranks call it. Throws
/// CommunicationError, on all ranks and with the words of those that failed, if two do not connect within
/// options.connect_timeout seconds, and at once if a rank is lost meanwhile.
GlooConnections connect_gloo(RankWatch& ranks, const ProcessEnvironment& environment,
                             const CommunicatorOptions& options);

/// Ends connections: whoever reads or writes there gets an error.
void shut_down(const Sockets& sockets) noexcept;

/// What Gloo says, without its sources' names.
std::string words_of(const std::exception& error);

}  // namespace sinter::comm
