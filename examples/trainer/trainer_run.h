// What frames a run: its ranks, the files that it may write, its name, and its end.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sinter/core/comm/communicator.h>
#include <sinter/nn/checkpoint/checkpoint.h>

#include "run/output_files.h"
#include "run/program.h"
#include "run/same_start.h"
#include "trainer/trainer_base.h"
#include "trainer/trainer_options.h"

namespace sinter::examples {

/// Starts the processes that --gpus or --processes ask for and waits for them; or meets the other ranks of
/// the run, if there are some, and calls `body`, whose failure they are told. `purpose` tells this run from
/// others that may be given the same port: what must be the same on all ranks. Gives the exit code.
int run_ranks(TrainerOptions& options, char** argv, const std::string& purpose,
              const std::function<int(const Communicator& ranks, Device device)>& body);

/// For --plan, which writes nothing, and with --for needs no GPU: as if neither files nor a GPU's decoder had
/// been asked for.
void prepare_plan(TrainerOptions& options);

/// Of several ranks the first speaks and writes.
void be_one_of_many(TrainerOptions& options, const Communicator& ranks);

/// Throws Error that names the option unless what all trainers write in one go can be written.
void check_common_files(const TrainerOptions& options);
/// The same of the files and folders that training writes as it goes. The lock keeps other processes from
/// training in the same folder of checkpoints while it lives.
void check_run_files(const TrainerOptions& options, std::optional<FolderLock>& lock);
/// Throws Error that names the option unless the disks have room for files of weights and, if it is not 0, a
/// checkpoint of so many bytes.
void check_room(const TrainerOptions& options, uint64_t weight_bytes, uint64_t checkpoint_bytes);

/// Gives the run its name, the checkpoint's or a new one. Throws Error if the folder of its log has another
/// run's.
void identify_run(const std::optional<nn::LoadedCheckpoint>& checkpoint, const Communicator& ranks,
                  TrainerOptions& options);

/// For --resume by a command line that does not say what to train on. Throws Error where there is no
/// checkpoint to go on with, unless a run that was stopped before its first one was begun with the same
/// command: neither a folder that is mistyped nor a run that is begun again without its options may become
/// another run.
void check_place(const TrainerOptions& options, const char* data_argument);

/// What all ranks must begin with, what is known of the data being `of_data`.
std::vector<Fact> facts_of(const TrainerOptions& options,
                           const std::optional<nn::LoadedCheckpoint>& checkpoint,
                           const std::vector<Fact>& of_data, const Recipe& recipe);

/// Writes --save-weights and --export.
void write_weights(Ending& ending, const TrainerOptions& options, const TrainerBase& trainer,
                   const std::function<nn::State()>& weights, const std::function<void()>& export_model);
/// Writes the report, also into the run's folder, and tells if the last steps are in no checkpoint,
/// or the best weights in no file.
void write_report(Ending& ending, const TrainerOptions& options, TrainerBase& trainer,
                  const std::string& report);

/// What the last line of a run that was stopped adds: the options that go on with it and with its logs.
std::string how_to_go_on(const TrainerOptions& options);

}  // namespace sinter::examples
