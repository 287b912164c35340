// What a recipe may say beside the options that most runs need: the network's regularisation and the loss.
#pragma once

#include <string>

#include "trainer/option_table.h"

namespace train_resnet {

struct NetworkOptions {
  double drop_path = 0.0;           // stochastic depth's probability at the last block
  bool zero_init_residual = false;  // blocks start as the identity
};

struct LossOptions {
  std::string kind = "cross-entropy";  // or bce
  double bce_threshold = 0.0;          // targets above it count as 1, others as 0; 0: they stay shares
  std::string class_weights;           // "balanced", a number for each class, or a file; empty: none

  bool is_binary() const { return kind == "bce"; }
};

void add_network_rows(sinter::examples::OptionTable& table, NetworkOptions& options);
void add_loss_rows(sinter::examples::OptionTable& table, LossOptions& options);

}  // namespace train_resnet
