// Which process of how many this one is, as its launcher says in the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace sinter {

/// What a launcher tells a process.
struct ProcessEnvironment {
  std::string launcher = "none";  ///< "torchrun", "mpirun", "srun", "environment" or "none"
  int rank = 0;                   ///< from 0 to size - 1, over all machines
  int size = 1;
  int local_rank = 0;  ///< among the processes of this machine: which GPU to take
  int local_size = 1;  ///< how many these are; 0: unknown
  /// Where rank 0 listens: the first port from `port` on, of `ports`, that is free.
  std::string address = {};
  int port = 0;
  int ports = 1;
  /// Tells the processes of this job from those of others that listen on the same machine.
  std::string job = {};
  /// Who does not know it is turned away (SINTER_JOB_KEY); empty: everybody knows it.
  std::string key = {};
  std::string interface =
      {};  ///< network interface by which others reach this process; empty: as rank 0 is reached
  /// Ports at which ranks listen for each other (SINTER_PORTS), for firewalls; 0: any.
  int first_port = 0;
  int last_port = 0;

  bool operator==(const ProcessEnvironment&) const = default;
};

/// Gives the value of an environment variable, or nothing if it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

/// Reads the variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), which anything
/// else that starts processes may set too, of Open MPI (OMPI_COMM_WORLD_...) or of Slurm's srun (SLURM_...),
/// in this order; without any of them this is the one process of a job. SINTER_ADDRESS and SINTER_PORT go
/// before MASTER_ADDR and MASTER_PORT; SINTER_JOB_KEY, SINTER_INTERFACE and SINTER_PORTS ("29500-29600") are
/// read beside them. Throws InvalidArgument, with the variables, where some are missing,
/// are no numbers, or contradict each other.
ProcessEnvironment read_process_environment(const EnvironmentLookup& lookup);
/// The same from this process's own environment.
ProcessEnvironment read_process_environment();

/// The first host of Slurm's short form of a list, "node[03-07,9],login": "node03". Throws InvalidArgument
/// if it is none.
std::string first_host(const std::string& list);

}  // namespace sinter
