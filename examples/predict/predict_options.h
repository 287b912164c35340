// --predict: what a trainer's command line says of predictions.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/option_table.h"
#include "trainer/trainer_options.h"

namespace sinter::examples {

struct PredictionOptions {
  std::string pictures;     ///< a picture, a folder of them, or a list; empty: there is nothing to predict
  std::string output;       ///< a CSV, JSONL or safetensors file; empty: CSV on standard output
  int64_t top_k = 1;        ///< classes told of each picture
  bool flip = false;        ///< averages over the mirror image too
  int crops = 1;            ///< or 5: averages over the middle and four corners
  std::string features;     ///< a layer; empty: classes are predicted
  std::string class_names;  ///< a file of names, for weights that have none

  bool wanted() const { return !pictures.empty(); }
};

/// The group "Predictions".
void add_prediction_rows(OptionTable& table, PredictionOptions& options);

/// Mistakes in how these options go together and with others; empty if there is none.
std::string check_prediction(const PredictionOptions& options, const TrainerOptions& others);

}  // namespace sinter::examples
