// IJB-B and IJB-C: templates of a person's pictures, compared one with one and one with many.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <sinter/nn/data/faces/ijb.h>
#include <sinter/nn/metrics/identification.h>
#include <sinter/nn/metrics/roc.h>
#include <sinter/nn/metrics/templates.h>
#include <sinter/nn/module/module.h>

#include "options.h"

namespace train_insightface {

/// Opens --ijb. Throws Error that names the option.
sinter::nn::data::IjbSet open_ijb_set(const Options& options);

/// Aligns and embeds all pictures, in the order of the templates, and pools them as the options say; no more
/// than a batch of pictures and one embedding a template are held. None if stop_signal() is set before the
/// end. Throws Error for an --image-size that is no multiple of 112 or 128.
std::optional<sinter::nn::Templates> embed_templates(const sinter::nn::data::IjbSet& set,
                                                     const sinter::nn::AnyModule& backbone,
                                                     const Options& options, sinter::Device device);
/// The same of embeddings made elsewhere: --ijb-embeddings, a safetensors file with `embeddings` (N, D),
/// float32, whose row i is of line i of the lists, neither normalised nor multiplied by the detector's score,
/// mirror images added or not. Throws Error that names the option if they do not fit.
sinter::nn::Templates read_templates(const sinter::nn::data::IjbSet& set, const Options& options);

/// 1:N with one gallery.
struct IjbSearch {
  std::string gallery;
  int64_t templates = 0;
  sinter::nn::IdentificationResult result;
};

struct IjbResult {
  std::string name;
  int64_t images = 0, templates = 0, genuine = 0, impostors = 0;
  struct Row {
    int64_t one_in = 0;
    sinter::nn::TarAtFar exact;
    sinter::nn::RocPoint insightface;
  };
  std::vector<Row> rows;  // FAR from 1e-6 to 1e-1
  double area = 0.0;
  std::vector<sinter::nn::RocPoint> curve;
  std::vector<IjbSearch> searches;  // a gallery each; none without the files for 1:N
};

/// Compares all pairs, whose file is read piece by piece: five bytes a pair are held. None if stop_signal()
/// is set before the end. Throws IoError, naming file and line, for templates without pictures.
std::optional<IjbResult> compare_templates(const sinter::nn::data::IjbSet& set,
                                           const sinter::nn::Templates& templates);

/// A table of at most 80 columns.
std::string to_table(const IjbResult& result);
nlohmann::ordered_json to_json(const IjbResult& result, const Options& options);

}  // namespace train_insightface
