#include "report.h"

#include <fstream>

#include <nlohmann/json.hpp>

#include <sinter/core/base/error.h>

namespace train_resnet {

void write_report(const std::string& path, const Options& options, const std::string& device,
                  const TrainTotals& totals, std::optional<double> accuracy) {
  nlohmann::ordered_json report = {{"model", options.model},
                                   {"precision", *options.precision},
                                   {"layout", to_string(*options.layout)},
                                   {"device", device},
                                   {"epochs", *options.epochs},
                                   {"batch", *options.batch},
                                   {"seed", options.seed},
                                   {"steps", totals.steps},
                                   {"train_seconds", totals.seconds},
                                   {"wait_seconds", totals.wait_seconds},
                                   {"img_s", nullptr},
                                   {"peak_gib", static_cast<double>(totals.peak_bytes) / 0x1p30},
                                   {"loss", totals.last_loss},
                                   {"skipped_steps", totals.skipped_steps},
                                   {"accuracy", nullptr}};
  if (totals.seconds > 0) report["img_s"] = static_cast<double>(totals.images) / totals.seconds;
  if (accuracy) report["accuracy"] = *accuracy;
  std::ofstream file(path);
  file << report.dump(2) << '\n';
  file.close();
  if (!file) sinter::throw_error<sinter::IoError>("[report] cannot write {}", path);
}

}  // namespace train_resnet
