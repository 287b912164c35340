// Adam and AdamW.
#pragma once

#include <concepts>

#include <sinter/nn/optim/optimizer.h>

namespace sinter::nn {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;  ///< added to the gradient, times the parameter
  bool amsgrad = false;       ///< divide by the largest average of squares so far
  bool maximize = false;      ///< climb instead of descend
};

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;  ///< shrinks the parameter by learning rate times this
  bool amsgrad = false;        ///< divide by the largest average of squares so far
  bool maximize = false;       ///< climb instead of descend
};

/// The same numbers as torch.optim.Adam; the formulas stand at ops::update::adamw_step.
/// Source: D. Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015.
class Adam : public Optimizer {
 public:
  explicit Adam(std::vector<Parameter> parameters, const AdamOptions& options = {});
  explicit Adam(std::vector<ParameterGroup> groups, const AdamOptions& options = {});
  template <std::convertible_to<double> Rate>
  Adam(const auto&, Rate) = delete;  // the learning rate goes into step(lr)

  /// Another beta1 from the next step on, for schedules that move it: OneCycleSchedule::momentum. A job reads
  /// it as it reads the learning rate: only the first call makes another graph. Throws
  /// InvalidArgument unless it is in [0, 1).
  void set_beta1(double beta1);

 protected:
  Adam(const char* tag, std::vector<ParameterGroup> groups, const AdamOptions& options, bool decoupled);
  void update(std::span<Slot* const> slots, const UpdateOptions& options) override;

 private:
  AdamOptions options_;
  bool decoupled_;
};

/// The same numbers as torch.optim.AdamW: Adam with the weight decay apart from the gradient.
/// Source: I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", ICLR 2019.
class AdamW : public Adam {
 public:
  explicit AdamW(std::vector<Parameter> parameters, const AdamWOptions& options = {});
  explicit AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options = {});
  template <std::convertible_to<double> Rate>
  AdamW(const auto&, Rate) = delete;  // the learning rate goes into step(lr)
};

}  // namespace sinter::nn
