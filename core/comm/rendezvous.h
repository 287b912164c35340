// How the processes of a job find each other: all connect to rank 0. Internal to core/comm.
#pragma once

#include <string>
#include <vector>

#include <sinter/core/comm/link/socket.h>
#include <sinter/core/comm/process_environment.h>

namespace sinter::comm {

struct Member {
  std::string host;
  int process = 0;
};

/// "rank 2 (node03, process 4711)".
std::string describe(const std::vector<Member>& members, int rank);

/// The processes of a job after they have met.
struct Meeting {
  int rank = 0;
  std::vector<Member> members;    // by rank
  std::vector<Channel> channels;  // on rank 0 by rank, its own closed; elsewhere one, to rank 0
  /// Where this rank is on the way to rank 0; rank 0 is where ranks of other machines reach it, if there are.
  Address address = {};
};

struct MeetingOptions {
  double timeout_seconds = 120.0;
  std::string library = {};  ///< what sums on CPUs: ranks that have another are turned away
  std::string purpose = {};  ///< what the job is for: as CommunicatorOptions::purpose
};

/// Returns when all have come. Whoever says nothing, says nothing that a rank of this job would say, or does
/// not know its key is dropped and disturbs nobody. So is a rank that comes twice, or that is of another
/// version or job size: it throws CommunicationError with the reason, and the log of rank 0 has it. Throws
/// CommunicationError, on all ranks that have come, if one does not come in time (the message names it) or
/// goes away; and where the port is in use or rank 0 cannot be reached.
Meeting meet(const ProcessEnvironment& environment, const MeetingOptions& options);

}  // namespace sinter::comm
