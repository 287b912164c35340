// train_resnet: trains a ResNet on images.
//
// Without options it trains a ResNet-20 (0.27 million parameters) on the 1,437 handwritten digits (8x8, grey)
// that ship with Sinter, and tests it on 360 others: about 99 % in half a minute on two cores. With --data it
// takes your own:
//
//   train_resnet --data cifar10 --epochs 30                        # CIFAR binaries or folders of JPEGs
//   train_resnet --data photos --model resnet50 --image-size 224   # train/<class>/*.jpg and test/...
//   train_resnet --checkpoints run1 --resume                       # goes on where it stopped, bit for bit
//
// On a GPU it trains in mixed precision: --precision f32, tf32 or mixed-bf16 changes that.

#include <exception>

#include <fmt/core.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/data/formats/open_dataset.h>

#include "options.h"
#include "trainer.h"

namespace {

using namespace train_resnet;

sinter::Device choose_device(const std::string& name) {
  if (name != "auto") return sinter::Device::parse(name);
  return sinter::is_available(sinter::Device::cuda()) ? sinter::Device::cuda() : sinter::Device::cpu();
}

int run(Options options) {
  if (options.threads > 0) sinter::set_num_threads(options.threads);
  sinter::manual_seed(options.seed);
  const sinter::Device device = choose_device(options.device);
  const std::string folder = options.data.empty() ? SINTER_DIGITS : options.data;
  auto [train, test, kind] = sinter::nn::data::open_dataset(folder);
  if (options.image_size == 0) {  // small images are decoded once and kept
    train = sinter::nn::data::preload(*train);
    test = sinter::nn::data::preload(*test);
  }
  complete(options, *train, device);
  const auto image = train->get(0).image;
  fmt::print("{} ({}): {} training and {} test images in {} classes",
             options.data.empty() ? "handwritten digits" : folder, kind, train->size(), test->size(),
             train->num_classes());
  if (options.image_size == 0) fmt::print(", {}x{}x{}", image.height, image.width, image.channels);
  fmt::print("\n{}\n{}", sinter::backend_of(device).describe(device.index), describe(options));

  Trainer trainer(options, device, train, test);
  fmt::print("  {:<8} {:.2f} million\n\n", "weights",
             static_cast<double>(trainer.model().parameter_count()) / 1e6);
  std::fflush(stdout);
  if (options.resume && !trainer.resume()) fmt::print("no checkpoint yet in {}\n", options.checkpoints);
  catch_interrupts();
  if (!options.evaluate && !trainer.train()) {
    trainer.write_report(nullptr);
    fmt::print("stopped{}\n", options.checkpoints.empty() ? "" : "; go on with --resume");
    return 0;
  }
  if (!options.save_weights.empty()) {
    sinter::nn::write_safetensors(options.save_weights, trainer.model().state());
    fmt::print("weights written to {}\n", options.save_weights);
  }
  const TestResult result = trainer.evaluate();
  trainer.write_report(&result);
  fmt::print("\n{}\ntest accuracy: {:.1f} %\n", result.confusion.to_string(),
             100.0 * result.confusion.accuracy());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  try {
    if (const auto exit_code = parse_options(argc, argv, options)) return *exit_code;
    return run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
