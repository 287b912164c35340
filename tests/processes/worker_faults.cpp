#include "processes/worker_faults.h"

#include <csignal>
#include <fstream>
#include <set>

#include <netinet/in.h>
#include <sys/socket.h>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/activation/activation.h>

#include "processes/fake_gpu.h"

namespace sinter::testing {
namespace {

constexpr int kFaultStep = 5, kManySteps = 1'000'000;
constexpr std::chrono::seconds kSleep{14}, kFakeSleep{8};  // some seconds longer than the others wait

/// A rank, what is to happen, and where to say that it does.
struct Scene {
  Communicator& ranks;
  std::string kind;
  std::string file;

  bool is_victim() const { return ranks.rank() == ranks.size() - 1; }
  void tell() const { std::ofstream(file) << "now\n"; }
};

/// Sums on the CPU until something happens to the last rank; the others must learn its name.
void cpu_fault(const Scene& scene) {
  const std::string& kind = scene.kind;
  const Tensor x = Tensor::zeros({kind == "midway" ? 8'000'000 : 1000});
  for (int step = 0; step < kManySteps; ++step) {
    if (scene.is_victim() && step == kFaultStep) {
      if (kind == "kill") raise(SIGKILL);
      if (kind == "stop") raise(SIGSTOP);
      if (kind == "exception") throw Error("the disk is full");
      if (kind == "midway")
        std::thread([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(4));
          raise(SIGKILL);
        }).detach();
    }
    // As rank 0 saves: the others wait for it, and it hears of the loss behind its work.
    if (kind == "save" && step == kFaultStep && scene.ranks.rank() == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(800));
    if (kind == "save" && step == kFaultStep && scene.is_victim()) raise(SIGKILL);
    scene.ranks.all_reduce_(x);
  }
}

/// Part of a sum whose call the library refuses.
void call_refused_sum(const Communicator& ranks, const Stream& stream, void* sums) {
  const Communicator::Part part{.from = nullptr, .place = 0, .count = 1000};
  ranks.begin_all_reduce({{&part, 1}, sums, 1000, DType::kFloat32}, stream);
}

void fake_fault(const Scene& scene, FakeGpu& gpu) {
  const std::string& kind = scene.kind;
  const bool is_well = kind == "well";
  for (int step = 0; step < (is_well || kind == "end" ? 20 : kManySteps); ++step) {
    if (step == kFaultStep && scene.is_victim()) {
      scene.tell();
      if (kind == "sleeps") std::this_thread::sleep_for(kFakeSleep);
      if (kind == "error") gpu.break_driver();
      if (kind == "call") call_refused_sum(scene.ranks, {.device = Device::cuda(0)}, nullptr);
      if (kind == "gone") raise(SIGKILL);
    }
    if (step == kFaultStep && (kind == "network" || kind == "gone")) gpu.break_network();
    // A host that has nothing to do for the GPU for longer than an operation may take.
    if (step == kFaultStep && is_well) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    scene.ranks.check();
    scene.ranks.note_work("a step");
    gpu.synchronize();
  }
  if (kind == "end") {
    gpu.break_network();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

struct Network : nn::Module {
  nn::Linear first = child("first", nn::Linear(12, 40));
  nn::Linear last = child("last", nn::Linear(40, 5));

  Tensor forward(const Tensor& x) const override { return last(ops::relu(first(x))); }
};

/// Connections of this process to others.
std::set<int> connections() {
  using Place = std::pair<uint32_t, uint16_t>;
  std::vector<std::pair<int, Place>> peers;
  std::set<Place> own;
  for (int file = 0; file < 4096; ++file) {
    sockaddr_in here{}, there{};
    socklen_t length = sizeof here, length_there = sizeof there;
    if (getsockname(file, reinterpret_cast<sockaddr*>(&here), &length) != 0 || here.sin_family != AF_INET ||
        getpeername(file, reinterpret_cast<sockaddr*>(&there), &length_there) != 0)
      continue;
    own.emplace(here.sin_addr.s_addr, here.sin_port);
    peers.push_back({file, {there.sin_addr.s_addr, there.sin_port}});
  }
  std::set<int> found;
  for (const auto& [file, place] : peers) {
    if (!own.contains(place)) found.insert(file);
  }
  return found;
}

std::set<int> nccl_connections;  // of which NCCL made the first ones while ranks met

void break_network(const std::set<int>& after_join) {
  for (const int file : connections()) {
    if (!after_join.contains(file) || nccl_connections.contains(file)) shutdown(file, SHUT_RDWR);
  }
}

void gpu_fault(const Scene& scene, Device device) {
  const std::set<int> after_join = connections();
  const std::string kind = scene.kind.substr(0, scene.kind.find('.'));
  const bool is_eager = scene.kind.ends_with(".eager"), is_well = kind == "well";
  manual_seed(7);
  const Network network;
  network.to(device);
  nn::SGD sgd(network.parameters(), {.momentum = 0.9});
  nn::TrainJob job(network, nn::CrossEntropyLoss{}, sgd, {.communicator = &scene.ranks});
  const Tensor x = Tensor::full({4, 12}, 0.5).to(device), sums = Tensor::zeros({1000}).to(device);
  const Tensor labels = Tensor::from_values<int64_t>({0, 1, 2, 3}, {4}).to(device);
  const auto step = [&] {
    if (!is_eager) return job.step(x, labels, 0.01);
    scene.ranks.all_reduce_(sums);
    return sums;
  };
  for (int i = 0; i < (is_well ? 20 : kManySteps); ++i) {
    if (i == kFaultStep && is_well) std::this_thread::sleep_for(std::chrono::seconds(8));
    if (i == kFaultStep && scene.is_victim()) {
      scene.tell();
      if (kind == "kill") raise(SIGKILL);
      if (kind == "sleeps") std::this_thread::sleep_for(kSleep);
      if (kind == "aborted") scene.ranks.abort("[comm] the test has aborted this rank");
      if (kind == "error") call_refused_sum(scene.ranks, current_stream(device), sums.raw_data());
      if (kind == "network") break_network(after_join);
    }
    const Tensor result = step();
    if (!is_well || i < 15) (void)result.to(Device::cpu());  // waits for the GPU; the last ones nobody does
  }
}

}  // namespace

void run_fault(const std::string& what, const std::string& file) {
  const std::string kind = what.substr(what.find('.') + 1);
  const bool is_fake = what.starts_with("fake."), is_gpu = what.starts_with("gpu.");
  CommunicatorOptions options{
      .join_timeout = 15.0, .connect_timeout = 6.0, .timeout = 60.0, .heartbeat_timeout = 4.0};
  FakeGpu* fake = nullptr;
  if (is_fake) {
    options.device = Device::cuda(0);
    if (kind == "sleeps") options.timeout = 3.0;
    if (kind == "well") options.timeout = 1.0;
    comm::gpu_backend_maker() = [&](comm::RankWatch& ranks, const CommunicatorOptions&) {
      if (kind.starts_with("connect") && ranks.rank() == ranks.size() - 1) {
        std::ofstream(file) << "now\n";
        if (kind == "connect_kill") raise(SIGKILL);
        throw Error("the driver is too old");
      }
      auto made = std::make_unique<FakeGpu>(ranks.rank(), ranks.size(), file + ".counts");
      fake = made.get();
      return made;
    };
  }
  if (is_gpu) {
    options.device = Device::cuda(read_process_environment().rank);
    options.join_timeout = 100.0;
    if (kind.starts_with("sleeps") || kind == "well") options.timeout = 5.0;
    comm::gpu_backend_maker() = [](comm::RankWatch& ranks, const CommunicatorOptions& given) {
      const std::set<int> before = connections();
      auto made = comm::make_nccl_backend(ranks, given);
      for (const int socket : connections()) {
        if (!before.contains(socket)) nccl_connections.insert(socket);
      }
      return made;
    };
  }
  const auto ranks = Communicator::join(options);
  const Scene scene{*ranks, kind, file};
  if (!is_fake && !is_gpu) return cpu_fault(scene);
  try {
    is_fake ? fake_fault(scene, *fake) : gpu_fault(scene, options.device);
    ranks->leave();
  } catch (const std::exception& error) {
    ranks->fail(error.what());
    throw;
  }
}

}  // namespace sinter::testing
