// What a rank says to rank 0 when it comes, and how both show each other that they are of one job. Internal
// to core/comm.
//
//   the rank   kHello      who it is, and a number that was drawn for this
//   rank 0     kChallenge  a number of its own, and what only who knows the job's key can make of all these
//   the rank   kProof      the same the other way round
//   rank 0     kTaken; or kRefuse (another job) or kFatal (this job, but not this rank), with the reason
#pragma once

#include <optional>
#include <string>

#include <sinter/core/comm/process_environment.h>

namespace sinter::comm {

struct Hello {
  std::string version = {};  ///< of Sinter; empty: of one that did not say
  std::string library = {};  ///< what sums on CPUs: all ranks need the same
  std::string job = {};      ///< the launcher's name of it
  std::string purpose = {};  ///< a digest of CommunicatorOptions::purpose
  std::string host = {};
  int size = 0;
  int rank = -1;
  int process = 0;
};

/// That of this process.
Hello own_hello(const ProcessEnvironment& environment, const std::string& library,
                const std::string& purpose);
/// As words of a message, with a number drawn for it.
std::string write_hello(const Hello& hello, const std::string& nonce);
/// What somebody said, fit for messages; nothing if it is no hello of any Sinter.
std::optional<Hello> read_hello(const std::string& text);
/// "rank 2 (node03, process 4711)".
std::string describe(const Hello& hello);

/// Why rank 0, which says `own`, cannot take a rank of the same job; empty if it can.
std::string mistake_in(const Hello& hello, const Hello& own);

enum class Side { kRankZero, kOther };
/// Shows that whoever makes it knows the key, in this meeting and on this side.
std::string proof(const std::string& key, Side side, const std::string& hello, const std::string& nonce);

}  // namespace sinter::comm
