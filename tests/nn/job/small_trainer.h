// A small model in training with all that belongs to it, which can step by a job or eagerly.
#pragma once

#include <memory>
#include <string>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/checkpoint.h>
#include <sinter/ops/cast/cast.h>

#include "nn/job/job_test_support.h"

namespace sinter::nn::testing {

/// A little of everything that a step changes: weights, running statistics, counters, random numbers.
struct SmallNet : Module {
  Conv2d conv = child("conv", Conv2d(2, 5, 3, {.padding = 1, .bias = false}));
  BatchNorm2d norm = child("norm", BatchNorm2d(5));
  PReLU prelu = child("prelu", PReLU(5));
  Dropout drop = child("drop", Dropout(0.25));
  GlobalAvgPool2d pool = child("pool", GlobalAvgPool2d());
  Linear last = child("last", Linear(5, 3));
  Tensor forward(const Tensor& x) const override { return last(pool(drop(prelu(norm(conv(x)))))); }
};

constexpr int64_t kClasses = 3;

struct Batch {
  Tensor x, y;
};
inline Batch batch(int64_t size, int64_t seed, DType dtype = DType::kFloat32) {
  return {ops::cast(floats({size, 2, 5, 5}, seed), dtype), labels(size, kClasses, seed)};
}

struct TrainerOptions {
  Device device = {};
  DType working = DType::kFloat32;  ///< another one: mixed, with a scaler
  double initial_scale = 1024.0;
  double clip = 0.0;
  bool averages = false;
  TrainJobOptions job = {.passes = {.without = {"all"}}};  // bits are compared
};

/// A model in training with all that belongs to it.
struct Trainer {
  explicit Trainer(const TrainerOptions& given = {}) : options(given) {
    manual_seed(11);
    model = std::make_unique<SmallNet>();
    model->to(given.device);
    if (given.working != DType::kFloat32) {
      model->to_mixed(given.working);
      scaler = std::make_unique<GradScaler>(
          GradScalerOptions{.initial_scale = given.initial_scale, .growth_interval = 3});
    }
    sgd = std::make_unique<SGD>(model->parameters(),
                                SGDOptions{.momentum = 0.9, .weight_decay = 1e-3, .nesterov = true});
    if (given.averages) ema = std::make_unique<EMA>(*model, EMAOptions{.decay = 0.9, .warmup = true});
    TrainJobOptions job_options = given.job;
    job_options.max_grad_norm = given.clip;
    job_options.scaler = scaler.get();
    job_options.ema = ema.get();
    job = std::make_unique<TrainJob>(*model, loss, *sgd, job_options);
    key = RandomKey{99, 0};
  }

  Tensor step(const Batch& batch, bool by_job, double rate = 0.05) {
    default_generator() = Generator(key);
    const Batch here{batch.x.to(options.device), batch.y.to(options.device)};
    const Tensor result = by_job ? job->step(here.x, here.y, rate) : eager_step(here, rate);
    key = default_generator().key();
    return result;
  }

  /// All that a checkpoint holds.
  CheckpointData save() const {
    CheckpointData data;
    data.tensors["model"] = model->state();
    data.tensors["optimizer"] = sgd->state();
    if (scaler != nullptr) data.tensors["scaler"] = scaler->state();
    if (ema != nullptr) data.tensors["ema"] = ema->state();
    data.values["seed"] = key.seed;
    data.values["offset"] = key.offset;
    return data;
  }
  void load(const CheckpointData& data) {
    model->load_state(data.part("model"));
    sgd->load_state(data.part("optimizer"));
    if (scaler != nullptr) scaler->load_state(data.part("scaler"));
    if (ema != nullptr) ema->load_state(data.part("ema"));
    key = {data.value<uint64_t>("seed"), data.value<uint64_t>("offset")};
  }

  TrainerOptions options;
  CrossEntropyLoss loss{.label_smoothing = 0.1};
  std::unique_ptr<SmallNet> model;
  std::unique_ptr<SGD> sgd;
  std::unique_ptr<GradScaler> scaler;
  std::unique_ptr<EMA> ema;
  std::unique_ptr<TrainJob> job;
  RandomKey key;

 private:
  Tensor eager_step(const Batch& batch, double rate) {
    sgd->zero_grad();
    const Tensor value = loss((*model)(batch.x), batch.y);
    backward(scaler != nullptr ? scaler->scale(value) : value);
    if (scaler != nullptr) {
      scaler->step(*sgd, rate, {.max_grad_norm = options.clip});
    } else if (options.clip > 0.0) {
      sgd->step(rate, clip_grad_norm(model->parameters(), options.clip).factor);
    } else {
      sgd->step(rate);
    }
    if (ema != nullptr) ema->update();
    return value;
  }
};

inline std::string differences(const Trainer& a, const Trainer& b) {
  std::string text;
  const CheckpointData first = a.save(), second = b.save();
  for (const auto& [part, tensors] : first.tensors) {
    const std::string found = testing::differences(tensors, second.part(part));
    if (!found.empty()) text += part + ": " + found;
  }
  return text + (first.values == second.values ? "" : "random numbers");
}

}  // namespace sinter::nn::testing
