#include "options.h"

#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

namespace train_resnet {
namespace {

void add_model_options(CLI::App& app, Options& options) {
  app.add_option(
      "--data", options.data,
      "Folder with the data: IDX files, CIFAR binaries, or train/<class>/*.jpg and test/<class>/*.jpg. "
      "Default: the handwritten digits that ship with Sinter");
  app.add_option("--model", options.model, "Network")
      ->capture_default_str()
      ->check(CLI::IsMember({"resnet20", "resnet32", "resnet44", "resnet56", "resnet110", "resnet18",
                             "resnet34", "resnet50", "resnet101", "resnet152"}));
  const auto set_layout = [&options](const std::string& name) {
    options.layout = name == "nhwc" ? sinter::Layout::kNHWC : sinter::Layout::kNCHW;
  };
  app.add_option_function<std::string>("--layout", set_layout,
                                       "Order of the axes inside the network (nhwc on a GPU, else nchw)")
      ->check(CLI::IsMember({"nchw", "nhwc"}));
  app.add_option(
         "--precision", options.precision,
         "Arithmetic: float32, float32 with products in TF32, or 16 bits with float32 weights beside them "
         "(mixed-f16 on a GPU, else f32)")
      ->check(CLI::IsMember({"f32", "tf32", "mixed-f16", "mixed-bf16"}));
  app.add_option(
         "--image-size", options.image_size,
         "Train on random resized crops of this size and test on centre crops; 0: images keep their size")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
}

void add_recipe_options(CLI::App& app, Options& options) {
  app.add_option("--epochs", options.epochs, "Passes over the training data (30)")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--batch", options.batch,
                 "Images per step (32 for small sets, else 512 on a GPU and 128 on a CPU)")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--lr", options.lr, "Largest learning rate (0.1 for small sets, else 0.4)")
      ->check(CLI::Range(1e-9, 1e3));
  app.add_option("--schedule", options.schedule, "Learning rate over the run")
      ->capture_default_str()
      ->check(CLI::IsMember({"one-cycle", "cosine", "step", "polynomial", "constant"}));
  app.add_option("--warmup", options.warmup, "Share of the run in which the learning rate rises")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--momentum", options.momentum, "Momentum of SGD")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--nesterov,!--no-nesterov", options.nesterov, "Nesterov's form of the momentum (on)");
  app.add_option("--weight-decay", options.weight_decay, "Weight decay")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--decay-norms", options.decay_norms, "Weight decay on batch norms and biases too");
  app.add_option("--label-smoothing", options.label_smoothing, "Label smoothing (0 for small sets, else 0.1)")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--clip", options.clip, "Largest norm of the gradients; 0: no limit")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--crop-padding", options.crop_padding,
                 "Shift training images by up to so many pixels (1 for small sets, else 4)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--crop-mode", options.crop_mode,
                 "What a shift brings in from beyond the border: black, or the image mirrored there "
                 "(reflect for colour images, else zero)")
      ->check(CLI::IsMember({"zero", "reflect"}));
  const auto set_flip = [&options](int64_t count) { options.flip = count > 0; };
  app.add_flag_function("--flip,!--no-flip", set_flip,
                        "Mirror half of the training images (on for colour images)");
}

void add_run_options(CLI::App& app, Options& options) {
  app.add_option("--device", options.device, "cpu, cuda, cuda:<index>, or auto: a GPU if there is one")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of everything random")->capture_default_str();
  app.add_option("--threads", options.threads, "Threads that compute; 0: one per processor")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  app.add_option("--workers", options.workers,
                 "Threads that prepare batches; 0: none, in turns with training")
      ->capture_default_str()
      ->check(CLI::Range(0, 256));
  app.add_option("--max-steps", options.max_steps,
                 "Stop after so many steps, as Ctrl-C would; 0: train to the end")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--checkpoints", options.checkpoints, "Folder in which checkpoints are kept");
  app.add_option("--checkpoint-every", options.checkpoint_every, "Steps between checkpoints; 0: each epoch")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->needs("--checkpoints");
  app.add_flag("--resume", options.resume, "Go on from the newest checkpoint, if there is one")
      ->needs("--checkpoints");
  app.add_option("--load-weights", options.load_weights,
                 "Start from a safetensors file with torchvision's names");
  app.add_option("--save-weights", options.save_weights, "Write the final weights to a safetensors file");
  app.add_option(
         "--profile", options.profile,
         "Time so many steps op by op (the eleventh and later, of one epoch), and print where the time went")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--report", options.report,
                 "Write what came out to a JSON file: accuracy, seconds, images per second, memory");
  app.add_flag("--evaluate", options.evaluate, "Test only, without training");
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  CLI::App app(
      "Trains a ResNet. Without options: a ResNet-20 on handwritten digits, in about half a minute.");
  add_model_options(app, options);
  add_recipe_options(app, options);
  add_run_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return std::nullopt;
}

void complete(Options& options, const sinter::nn::data::Dataset& train, sinter::Device device) {
  const auto image = train.get(0).image;
  const bool small_set = train.size() < 10'000;
  if (!options.epochs) options.epochs = 30;
  if (!options.batch) options.batch = small_set ? 32 : device.is_cuda() ? 512 : 128;
  if (!options.lr) options.lr = small_set ? 0.1 : 0.4;
  if (!options.label_smoothing) options.label_smoothing = small_set ? 0.0 : 0.1;
  if (!options.precision) options.precision = device.is_cuda() ? "mixed-f16" : "f32";
  if (!options.layout) options.layout = device.is_cuda() ? sinter::Layout::kNHWC : sinter::Layout::kNCHW;
  if (!options.crop_padding) options.crop_padding = image.height < 20 ? 1 : 4;
  if (!options.crop_mode) options.crop_mode = image.channels == 3 ? "reflect" : "zero";
  if (!options.flip) options.flip = image.channels == 3;
}

sinter::DType compute_dtype(const Options& options) {
  if (*options.precision == "mixed-f16") return sinter::DType::kFloat16;
  if (*options.precision == "mixed-bf16") return sinter::DType::kBFloat16;
  return sinter::DType::kFloat32;
}

std::string describe(const Options& options) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"model", fmt::format("{}, {}, {}", options.model, *options.precision, to_string(*options.layout))},
      {"run", fmt::format("{} epochs, batch {}, seed {}", *options.epochs, *options.batch, options.seed)},
      {"sgd", fmt::format("learning rate {} ({}, warm-up {:.0f} %), momentum {}{}, weight decay {}",
                          *options.lr, options.schedule, 100 * options.warmup, options.momentum,
                          options.nesterov ? " (Nesterov)" : "", options.weight_decay)},
      {"images", options.image_size > 0
                     ? fmt::format("random crops resized to {}, {}", options.image_size,
                                   *options.flip ? "flipped at random" : "not flipped")
                     : fmt::format("shifted by up to {} pixels ({}), {}", *options.crop_padding,
                                   *options.crop_mode == "reflect" ? "mirrored at the border"
                                                                   : "black beyond the border",
                                   *options.flip ? "flipped at random" : "not flipped")},
      {"loss", fmt::format("cross-entropy, label smoothing {}", *options.label_smoothing)},
  };
  std::string text;
  for (const auto& [name, value] : rows) text += fmt::format("  {:<8} {}\n", name, value);
  return text;
}

}  // namespace train_resnet
