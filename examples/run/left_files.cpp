#include "run/left_files.h"

#include <filesystem>
#include <system_error>

#include <fmt/core.h>

#include <sinter/nn/checkpoint/checkpoint.h>

#include "common/text.h"

namespace sinter::examples {
namespace {

namespace fs = std::filesystem;

std::string row(const char* what, const std::string& text) {
  return fmt::format("{:<12} {}\n", what, text);
}

std::string row_of_file(const char* what, const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) ? row(what, path.string()) : "";
}

bool has_events(const fs::path& folder) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    if (entry->path().filename().string().starts_with("events.out.tfevents.")) return true;
  }
  return false;
}

}  // namespace

std::string list_left(const LeftFiles& files) {
  std::string text;
  if (!files.checkpoints.empty()) {
    const auto present = nn::CheckpointFolder(files.checkpoints).list();
    if (files.has_best) text += row_of_file("best weights", fs::path(files.checkpoints) / "best.safetensors");
    if (!present.empty()) text += row("checkpoint", present.back().string());
  }
  text += row_of_file("last weights", files.save_weights);
  text += row_of_file("ONNX", files.exported);
  text += row_of_file("report", files.report);
  text += row_of_file("log", files.table);
  if (files.log_folder.empty()) return text;
  const fs::path folder = files.log_folder;
  text += row_of_file("report", folder / "report.json") + row_of_file("curves", folder / "curves.svg");
  if (has_events(folder)) text += row("TensorBoard", "tensorboard --logdir " + quoted(files.log_folder));
  return text;
}

}  // namespace sinter::examples
