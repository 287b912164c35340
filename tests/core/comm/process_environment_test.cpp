// What launchers tell a process, and what contradicts itself.
#include <map>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/comm/process_environment.h>

namespace sinter {
namespace {

using Variables = std::map<std::string, std::string>;

ProcessEnvironment read(const Variables& variables) {
  return read_process_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found != variables.end() ? std::optional(found->second) : std::nullopt;
  });
}

std::string mistake(const Variables& variables) {
  try {
    read(variables);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "none";
}

void expect_mistake(const Variables& variables, const std::string& words) {
  const std::string said = mistake(variables);
  EXPECT_NE(said.find(words), std::string::npos) << said;
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "run7"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kSlurm = {{"SLURM_PROCID", "3"},  {"SLURM_NTASKS", "4"},
                          {"SLURM_LOCALID", "1"}, {"SLURM_JOB_NODELIST", "n[03-04]"},
                          {"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "0"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(ProcessEnvironment, IsAloneWithoutALauncher) {
  EXPECT_EQ(read({}), ProcessEnvironment{});
  EXPECT_EQ(read({{"MASTER_ADDR", "node1"}, {"RANK", ""}}).size, 1);
  // A batch script has Slurm's variables too, but is no step.
  EXPECT_EQ(read(without(kSlurm, "SLURM_STEP_ID")).size, 1);
}

TEST(ProcessEnvironment, ReadsTorchrun) {
  const ProcessEnvironment found = read(kTorchrun);
  EXPECT_EQ(found.launcher, "torchrun");
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_size, 4);
  EXPECT_EQ(found.address, "node1");
  EXPECT_EQ(found.port, 29501);  // its own is torchrun's
  EXPECT_GT(found.ports, 1);
  EXPECT_EQ(found.job, "run7");
}

TEST(ProcessEnvironment, ReadsOpenMpi) {
  const ProcessEnvironment found = read(kOpenMpi);
  EXPECT_EQ(found.launcher, "mpirun");
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.size, 2);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.address, "127.0.0.1");
  const Variables far =
      with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  expect_mistake(far, "mpirun -x MASTER_ADDR=<host>");
  EXPECT_EQ(read(with(far, {{"MASTER_ADDR", "n1"}})).address, "n1");
}

TEST(ProcessEnvironment, ReadsSlurm) {
  const ProcessEnvironment found = read(kSlurm);
  EXPECT_EQ(found.launcher, "srun");
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.size, 4);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.address, "n03");
  EXPECT_EQ(found.job, "17.0");
  EXPECT_EQ(read(with(kSlurm, {{"SINTER_ADDRESS", "ib3"}, {"SINTER_PORT", "4000"}})).address, "ib3");
}

TEST(ProcessEnvironment, KnowsListsOfHosts) {
  EXPECT_EQ(first_host("node7"), "node7");
  EXPECT_EQ(first_host("node7,node9"), "node7");
  EXPECT_EQ(first_host("node[007-012,20]-ib,login"), "node007-ib");
  EXPECT_EQ(first_host("rack1-n[4]"), "rack1-n4");
  for (const char* damaged : {"", "[", "node[", "node[]", "node[3", ",a", "a b", "node]3"})
    EXPECT_THROW(first_host(damaged), InvalidArgument) << damaged;
}

TEST(ProcessEnvironment, ReadsHowProcessesFindEachOther) {
  const ProcessEnvironment found = read(
      with(kTorchrun,
           {{"SINTER_JOB_KEY", "secret"}, {"SINTER_INTERFACE", "eth1"}, {"SINTER_PORTS", "29500-29600"}}));
  EXPECT_EQ(found.key, "secret");
  EXPECT_EQ(found.interface, "eth1");
  EXPECT_EQ(found.first_port, 29500);
  EXPECT_EQ(found.last_port, 29600);
  EXPECT_EQ(read(kTorchrun).first_port, 0);
  for (const char* ports : {"29500", "29500-", "-29600", "29600-29500", "0-5", "1-70000", "a-b"})
    expect_mistake(with(kTorchrun, {{"SINTER_PORTS", ports}}), "in SINTER_PORTS");
}

TEST(ProcessEnvironment, RefusesWhatCannotBe) {
  expect_mistake(without(kTorchrun, "WORLD_SIZE"), "RANK is set but WORLD_SIZE is not");
  expect_mistake(without(kTorchrun, "RANK"), "WORLD_SIZE is set but RANK is not");
  expect_mistake(without(kTorchrun, "MASTER_ADDR"), "set MASTER_ADDR");
  expect_mistake(with(kTorchrun, {{"RANK", "8"}}), "expected RANK < WORLD_SIZE but got 8 and 8");
  expect_mistake(with(kTorchrun, {{"RANK", "-1"}}), "in RANK but got '-1'");
  expect_mistake(with(kTorchrun, {{"RANK", "1x"}}), "in RANK but got '1x'");
  expect_mistake(with(kTorchrun, {{"WORLD_SIZE", "99999999999"}}), "in WORLD_SIZE");
  expect_mistake(with(kTorchrun, {{"WORLD_SIZE", "0"}}), "in WORLD_SIZE");
  expect_mistake(with(kTorchrun, {{"LOCAL_RANK", "4"}}), "expected a local rank below");
  expect_mistake(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}),
                 "expected at most 8 processes on this machine");
  expect_mistake(with(kTorchrun, {{"MASTER_PORT", "70000"}}), "in MASTER_PORT");
  expect_mistake(with(kTorchrun, {{"MASTER_PORT", "65535"}}), "set SINTER_PORT");
  expect_mistake(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE is not");
  expect_mistake(without(kSlurm, "SLURM_NTASKS"), "SLURM_NTASKS is not");
}

TEST(ProcessEnvironment, KnowsWhichLauncherIsTheInnermost) {
  // One torchrun on each machine, started by mpirun or srun.
  EXPECT_EQ(read(with(with(kOpenMpi, kSlurm), kTorchrun)).rank, 5);
  EXPECT_EQ(read(with(kSlurm, kOpenMpi)).launcher, "mpirun");
  // Left over from something else.
  const Variables mixed = with(kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "4"}});
  expect_mistake(mixed, "RANK and WORLD_SIZE say process 0 of 4, OMPI_COMM_WORLD_RANK and _SIZE say 1 of 2");
  EXPECT_EQ(read(with(kOpenMpi, {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}})).rank, 1);
}

}  // namespace
}  // namespace sinter
