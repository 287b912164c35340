// How a run is stopped from outside.
#pragma once

namespace sinter::examples {

/// Makes Ctrl-C (SIGINT), SIGTERM and a closed terminal (SIGHUP) a request to stop, which stop_signal()
/// tells; the same signal again ends the program at once. A hang-up that is ignored, as under nohup, stays
/// so.
void catch_stop_signals();

/// The signal that asked this run to stop; 0 if none has.
int stop_signal();

/// Turns a file that grows beyond `ulimit -f` into an error of that file. If the run leaves files behind, a
/// reader who closes the pipe on standard output does not end it either.
void ignore_write_signals(bool leaves_files);

}  // namespace sinter::examples
