// How the processes of a job find each other: all connect to rank 0. Internal to core/comm.
#pragma once

#include <string>
#include <vector>

#include <sinter/core/comm/process_environment.h>
#include <sinter/core/comm/socket.h>

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
};

/// Returns when all have come. A connection that says nothing, or nothing that a rank of this job would say,
/// is dropped and disturbs nobody. Throws CommunicationError, on all ranks that have come, if one does not
/// come in time (the message names it), goes away, comes twice or is of a job of another size; and where the
/// port is in use or rank 0 cannot be reached.
Meeting meet(const ProcessEnvironment& environment, double timeout_seconds);

/// Gives every rank the parts of all, by rank. All call it, in the same order. Throws CommunicationError,
/// which names `what` and the rank, if one does not in time.
std::vector<std::string> exchange(Meeting& meeting, const std::string& part, const char* what,
                                  double timeout_seconds);

}  // namespace sinter::comm
