// The networks that are measured, and the cases of cases.json, which Sinter's programs and the peers share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sinter/nn/module/module.h>

namespace sinter::bench {

/// What a network is trained for, and so its last layer and its loss.
enum class Task {
  kClasses,  ///< logits (N, classes)
  kFaces,    ///< embeddings (N, 512), for a margin head
  kPixels,   ///< logits for every pixel, (N, classes, H, W) or channels last
};

/// A network, images, and how many there are of both.
struct NetworkCase {
  std::string name;     ///< "resnet50 batch 256", as rows have it
  std::string network;  ///< "resnet50"
  Task task = Task::kClasses;
  int64_t batch = 1, size = 224;
  int64_t classes = 1000;    ///< or people
  double sample_rate = 1.0;  ///< of PartialFC
  bool in_full = false;      ///< measured in every precision, layout and limit of memory
};

/// The product of networks, batches and dtypes, those that matter most first.
struct InferCases {
  std::vector<std::string> dtypes;
  std::vector<NetworkCase> cases;  ///< of each dtype
};

/// The cases of suite "train_step", "train_step_cpu" or "scaling". Throws IoError for a file that cannot be
/// read, and InvalidArgument for a network that is not here.
std::vector<NetworkCase> network_cases(const std::string& suite);
InferCases infer_cases();

/// Without the head of a face network. In NCHW.
nn::AnyModule make_network(const NetworkCase& problem);

/// Images, and classes, people or each pixel's class, to the loss.
using TrainNetwork = nn::ModuleOf<Tensor(const Tensor&, const Tensor&)>;

/// make_network() with a loss.
std::unique_ptr<TrainNetwork> make_trained(const NetworkCase& problem);

/// Labels of such a case, (N) or (N, H, W), drawn from `seed`.
Tensor make_labels(const NetworkCase& problem, Device device, uint64_t seed = 7);

}  // namespace sinter::bench
