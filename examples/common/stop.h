// How a run is stopped from outside, and told to save.
#pragma once

#include <array>
#include <csignal>

namespace sinter::examples {

/// The requests to stop, the strongest first.
inline constexpr std::array<int, 5> kStopSignals = {SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGXCPU};

/// Who a second Ctrl-C is for.
enum class SecondInterrupt {
  kEnds,    ///< it ends this process at once
  kIsTold,  ///< interrupted_twice() tells it: a parent ends its children first
};

/// Makes SIGTERM, Ctrl-C (SIGINT), a closed terminal (SIGHUP) and the warnings that a scheduler ends the job
/// (SIGUSR2, SIGXCPU) a request to stop, which stop_signal() tells. What comes after the first changes
/// nothing, as supervisors send such a signal twice, but for a second Ctrl-C a second or more after the
/// first. A rank that run_processes() has started leaves that to its parent. A hang-up that is ignored, as
/// under nohup, stays so.
void catch_stop_signals(SecondInterrupt second = SecondInterrupt::kEnds);

/// The signal that asked this run to stop; 0 if none has.
int stop_signal();

/// Whether Ctrl-C came again, where that is told.
bool interrupted_twice();

/// Makes SIGUSR1 a request to save and go on, from now on.
void catch_save_signals();

/// Whether such a request has come since the last call.
bool take_save_request();

/// Turns a file that grows beyond `ulimit -f` into an error of that file. If the run leaves files behind, a
/// reader who closes the pipe on standard output does not end it either.
void ignore_write_signals(bool leaves_files);

}  // namespace sinter::examples
