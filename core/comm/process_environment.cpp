#include <charconv>
#include <cstdlib>

#include <sinter/core/base/error.h>
#include <sinter/core/comm/process_environment.h>

namespace sinter {
namespace {

constexpr int kUsualPort = 29410;
constexpr int kMostRanks = 1 << 20;
constexpr int kTriedPorts = 16;  // where the user has named none

/// The variables of one launcher.
class Variables {
 public:
  explicit Variables(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> text(const std::string& name) const {
    std::optional<std::string> value = lookup_(name);
    return value && !value->empty() ? value : std::nullopt;
  }
  bool has(const std::string& name) const { return text(name).has_value(); }
  std::optional<int> number(const std::string& name, int least, int most) const {
    const std::optional<std::string> given = text(name);
    if (!given) return std::nullopt;
    return parse(name, *given, least, most);
  }
  static int parse(const std::string& name, const std::string& given, int least, int most) {
    int value = 0;
    const char* const end = given.data() + given.size();
    const auto [stop, error] = std::from_chars(given.data(), end, value);
    SINTER_CHECK(error == std::errc() && stop == end && value >= least && value <= most,
                 "[comm] expected a number from {} to {} in {} but got '{}'", least, most, name, given);
    return value;
  }
  int needed(const std::string& name, int least, int most, const std::string& beside) const {
    const std::optional<int> value = number(name, least, most);
    SINTER_CHECK(value.has_value(), "[comm] {} is set but {} is not: both say which process this is", beside,
                 name);
    return *value;
  }

 private:
  const EnvironmentLookup& lookup_;
};

void check_place(const ProcessEnvironment& found, const std::string& rank, const std::string& size) {
  SINTER_CHECK(found.rank < found.size, "[comm] expected {} < {} but got {} and {}", rank, size, found.rank,
               found.size);
  SINTER_CHECK(found.local_size == 0 || found.local_rank < found.local_size,
               "[comm] expected a local rank below the number of processes on this machine but got {} of {}",
               found.local_rank, found.local_size);
  SINTER_CHECK(found.local_size <= found.size,
               "[comm] expected at most {} processes on this machine, as in {}, but got {}", found.size, size,
               found.local_size);
}

std::optional<ProcessEnvironment> from_variables(const Variables& variables) {
  if (!variables.has("RANK") && !variables.has("WORLD_SIZE")) return std::nullopt;
  ProcessEnvironment found;
  const bool by_torchrun = variables.has("TORCHELASTIC_RUN_ID");
  found.launcher = by_torchrun ? "torchrun" : "environment";
  found.size = variables.needed("WORLD_SIZE", 1, kMostRanks, "RANK");
  found.rank = variables.needed("RANK", 0, kMostRanks, "WORLD_SIZE");
  found.local_size = variables.number("LOCAL_WORLD_SIZE", 1, kMostRanks).value_or(0);
  found.local_rank = variables.number("LOCAL_RANK", 0, kMostRanks).value_or(0);
  found.job = variables.text("TORCHELASTIC_RUN_ID").value_or("");
  check_place(found, "RANK", "WORLD_SIZE");
  return found;
}

std::optional<ProcessEnvironment> from_open_mpi(const Variables& variables) {
  const std::string rank = "OMPI_COMM_WORLD_RANK", size = "OMPI_COMM_WORLD_SIZE";
  if (!variables.has(rank) && !variables.has(size)) return std::nullopt;
  ProcessEnvironment found;
  found.launcher = "mpirun";
  found.size = variables.needed(size, 1, kMostRanks, rank);
  found.rank = variables.needed(rank, 0, kMostRanks, size);
  found.local_size = variables.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, kMostRanks).value_or(0);
  found.local_rank = variables.number("OMPI_COMM_WORLD_LOCAL_RANK", 0, kMostRanks).value_or(0);
  if (found.local_size == found.size) found.address = "127.0.0.1";
  found.job = variables.text("PMIX_NAMESPACE").value_or("");
  check_place(found, rank, size);
  return found;
}

// A batch script has most of these variables too, but is one process: only srun makes steps.
std::optional<ProcessEnvironment> from_slurm(const Variables& variables) {
  const std::string rank = "SLURM_PROCID", size = "SLURM_NTASKS", step = "SLURM_STEP_NUM_TASKS";
  if (!variables.has("SLURM_STEP_ID") || !variables.has(rank)) return std::nullopt;
  ProcessEnvironment found;
  found.launcher = "srun";
  found.rank = variables.needed(rank, 0, kMostRanks, "SLURM_STEP_ID");
  const std::optional<int> of_step = variables.number(step, 1, kMostRanks);
  found.size = of_step ? *of_step : variables.needed(size, 1, kMostRanks, rank);
  found.local_rank = variables.number("SLURM_LOCALID", 0, kMostRanks).value_or(0);
  found.local_size = 0;
  const std::optional<std::string> hosts = variables.text("SLURM_STEP_NODELIST");
  const std::optional<std::string> all = hosts ? hosts : variables.text("SLURM_JOB_NODELIST");
  if (all) found.address = first_host(*all);
  found.job =
      fmt::format("{}.{}", variables.text("SLURM_JOB_ID").value_or(""), *variables.text("SLURM_STEP_ID"));
  check_place(found, rank, of_step ? step : size);
  return found;
}

/// Where the processes meet.
void find_address(const Variables& variables, ProcessEnvironment& found) {
  std::optional<std::string> address = variables.text("SINTER_ADDRESS");
  if (!address) address = variables.text("MASTER_ADDR");
  if (address) found.address = *address;
  SINTER_CHECK(!found.address.empty(),
               "[comm] nothing says where the {} processes meet: set MASTER_ADDR to the host of rank 0{}",
               found.size, found.launcher == "mpirun" ? " (mpirun -x MASTER_ADDR=<host>)" : "");
  const std::optional<int> own = variables.number("SINTER_PORT", 1, 65535);
  const std::optional<int> given = variables.number("MASTER_PORT", 1, 65535);
  // torchrun itself listens on MASTER_PORT.
  const bool is_taken = variables.text("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  found.port = own ? *own : given ? *given + (is_taken ? 1 : 0) : kUsualPort;
  found.ports = own || (given && !is_taken) ? 1 : kTriedPorts;
  found.ports = std::min(found.ports, 65536 - found.port);
  SINTER_CHECK(found.ports > 0, "[comm] there is no port behind MASTER_PORT={}; set SINTER_PORT", *given);
}

/// How the processes find each other beyond that.
void find_links(const Variables& variables, ProcessEnvironment& found) {
  found.key = variables.text("SINTER_JOB_KEY").value_or("");
  found.interface = variables.text("SINTER_INTERFACE").value_or("");
  const std::optional<std::string> ports = variables.text("SINTER_PORTS");
  if (!ports) return;
  const size_t dash = ports->find('-');
  SINTER_CHECK(dash != std::string::npos,
               "[comm] expected two ports in SINTER_PORTS, as 29500-29600, but got '{}'", *ports);
  found.first_port = Variables::parse("SINTER_PORTS", ports->substr(0, dash), 1, 65535);
  found.last_port = Variables::parse("SINTER_PORTS", ports->substr(dash + 1), found.first_port, 65535);
}

}  // namespace

std::string first_host(const std::string& list) {
  const size_t open = list.find_first_of("[,");
  std::string host = list.substr(0, open);
  if (open != std::string::npos && list[open] == '[') {
    const size_t end = list.find_first_of("-,]", open);
    SINTER_CHECK(end != std::string::npos && end > open + 1 && list.find(']', open) != std::string::npos,
                 "[comm] expected a list of hosts such as node[01-04] but got '{}'", list);
    host += list.substr(open + 1, end - open - 1);
    const size_t close = list.find(']', open);
    host += list.substr(close + 1, list.find(',', close) - close - 1);
  }
  SINTER_CHECK(!host.empty() && host.find_first_of("[] ") == std::string::npos,
               "[comm] expected a list of hosts such as node[01-04] but got '{}'", list);
  return host;
}

ProcessEnvironment read_process_environment(const EnvironmentLookup& lookup) {
  const Variables variables(lookup);
  const std::optional<ProcessEnvironment> named = from_variables(variables);
  const std::optional<ProcessEnvironment> by_mpi = from_open_mpi(variables);
  // torchrun may run below mpirun or srun, one on each machine; then its own variables hold.
  if (named && by_mpi && named->launcher != "torchrun") {
    SINTER_CHECK(named->rank == by_mpi->rank && named->size == by_mpi->size,
                 "[comm] RANK and WORLD_SIZE say process {} of {}, OMPI_COMM_WORLD_RANK and _SIZE say {} of "
                 "{}; unset the ones that do not belong to this job",
                 named->rank, named->size, by_mpi->rank, by_mpi->size);
  }
  std::optional<ProcessEnvironment> found = named ? named : by_mpi;
  if (!found) found = from_slurm(variables);
  if (!found) return {};
  if (found->size > 1) {
    find_address(variables, *found);
    find_links(variables, *found);
  }
  return *found;
}

ProcessEnvironment read_process_environment() {
  return read_process_environment([](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
}

}  // namespace sinter
