// A run of several processes on this machine: a trainer starts itself so many times, and watches over them.
#pragma once

#include <optional>
#include <string>

#include <sinter/core/comm/communicator.h>

namespace sinter::examples {

/// How many processes were asked for by --processes or --gpus, and what stands in the way.
struct ProcessCount {
  const char* option = "--processes";
  int count = 1;
};

/// Starts this program `count` times with the same command line, as ranks that meet on this machine, and
/// waits for all. Signals that ask it to stop or to save go on to them, once; Ctrl-C a second time ends them
/// at once. If one fails, the others, which learn of it,
/// have 20 s to end. None is left behind, not even if this process is killed. Gives the exit code of
/// whichever failed first, 128 + signal where a signal ended it; 0 if none did.
int run_processes(char** argv, int count);

/// Whether run_processes() is to be called: so many are asked for, and nobody has started them yet. Throws
/// Error where a launcher has started another number.
bool must_start(const ProcessCount& asked, const ProcessEnvironment& environment);

/// The device of this process: that of --device (`asked`), or, with --gpus or where a launcher has started
/// several, the GPU of its place among those on its machine.
Device device_of_rank(const std::string& asked, int gpus, int processes,
                      const ProcessEnvironment& environment);

/// The threads that this process computes with: as many as were asked for; for 0, the processors of the
/// machine shared with the others of the run there, 0 for all.
int threads_of_rank(int asked, const ProcessEnvironment& environment);

/// What was asked of a run from outside.
struct Requests {
  int stop = 0;       ///< the signal that stops it, the strongest where several came; 0: go on
  bool save = false;  ///< save a checkpoint, and go on
};

/// What was asked of any rank, the same on all. All ranks call it at the same place. A request to save is
/// told once. Of several ranks nobody waits: what was asked before a call is told by the next one, but where
/// it has to be told at once, as whoever was stopped has left something out, all `wait` for each other.
Requests agree_on_requests(const Communicator& ranks, bool wait = false);

}  // namespace sinter::examples
