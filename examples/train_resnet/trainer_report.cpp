// What a run tells of itself: a line per epoch, the CSV log and the JSON report.
#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <sinter/core/runtime/backend.h>

#include "common/console.h"
#include "common/progress_bar.h"
#include "common/text.h"
#include "run/output_files.h"
#include "trainer.h"

namespace train_resnet {

using namespace sinter;
using examples::rate;

namespace {

/// `judge`: what an epoch is judged by.
std::string log_header(const char* judge) {
  return fmt::format(
      "epoch,steps,learning_rate,loss,train_accuracy,{0}_accuracy,{0}_top5,img_s,compute_img_s,seconds,"
      "peak_bytes,skipped_steps",
      judge);
}

/// "12 MB" or "3.45 GB".
std::string format_bytes(size_t bytes) {
  const double count = static_cast<double>(bytes);
  return count < 1e9 ? fmt::format("{:.0f} MB", count / 1e6) : fmt::format("{:.2f} GB", count / 1e9);
}

std::vector<std::string> names_of(const nn::data::Dataset& data) {
  std::vector<std::string> names = data.class_names();
  for (int64_t i = static_cast<int64_t>(names.size()); i < data.num_classes(); ++i)
    names.push_back(std::to_string(i));
  return names;
}

/// The counts as JSON: a row for each true class, in one line.
std::string rows_of(const nn::ConfusionMatrix& confusion) {
  std::string text = "[";
  for (int64_t target = 0; target < confusion.classes(); ++target) {
    text += target > 0 ? ",\n    [" : "\n    [";
    for (int64_t taken = 0; taken < confusion.classes(); ++taken)
      text += fmt::format("{}{}", taken > 0 ? ", " : "", confusion.count(target, taken));
    text += "]";
  }
  return text + "\n  ]";
}

}  // namespace

void Trainer::report_epoch(const TestResult& test) const {
  const double images = static_cast<double>(stats_.images), loss = stats_.loss.read().mean;
  const double train_accuracy = static_cast<double>(epoch_correct_) / images;
  const double img_s = rate(stats_.images, stats_.seconds);
  const double compute_img_s = rate(stats_.images, stats_.compute_seconds);
  const double idle = std::clamp(1.0 - stats_.compute_seconds / std::max(stats_.seconds, 1e-9), 0.0, 1.0);
  const double left = stats_.seconds * static_cast<double>(*options_.epochs - epoch_ - 1);
  const size_t peak = backend_of(device_).memory_pool(device_.index).stats().peak_live_bytes;
  const int64_t skipped = scaler_.skipped() - stats_.skipped_before;

  const std::string line =
      fmt::format("epoch {:>3}/{}  loss {:.4f}  train {:6.2f} %  {} {:6.2f} %", epoch_ + 1, *options_.epochs,
                  loss, 100.0 * train_accuracy, judge(), 100.0 * test.confusion.accuracy());
  std::vector<std::string> details = {fmt::format("{:.0f} img/s", img_s),
                                      examples::format_duration(left) + " left"};
  if (skipped > 0)
    details.push_back(
        fmt::format("{} skipped, loss scale {}", examples::counted(skipped, "step"), scaler_.scale()));
  if (test.top5) details.push_back(fmt::format("top-5 {:.2f} %", 100.0 * *test.top5));
  details.push_back(fmt::format("{:.0f} % idle", 100.0 * idle));
  details.push_back(fmt::format("peak {}", format_bytes(peak)));
  details.push_back(fmt::format("computing {:.0f} img/s", compute_img_s));
  if (ranks_.size() > 1)
    details.push_back(fmt::format("{} processes, {:.0f} each", ranks_.size(), img_s / ranks_.size()));
  examples::say("{}\n", examples::fit(line, details, examples::text_columns(stdout)));

  log_line(log_header(judge()).c_str(),
           fmt::format("{},{},{:.6g},{:.6g},{:.6g},{:.6g},{},{:.6g},{:.6g},{:.6g},{},{}", epoch_ + 1, step_,
                       schedule_(std::max<int64_t>(step_ - 1, 0)), loss, train_accuracy,
                       test.confusion.accuracy(), test.top5 ? fmt::format("{:.6g}", *test.top5) : "", img_s,
                       compute_img_s, stats_.seconds, peak, skipped));
}

std::string Trainer::report(const TestResult* test) const {
  nlohmann::ordered_json report = {{"model", options_.model},
                                   {"optimizer", options_.optimizer},
                                   {"batch", options_.batch_of(plan_.images->size())},
                                   {"decoder", train_loader_.decoder_name()},
                                   {"hardware_decoded", train_loader_.hardware_decoded()},
                                   {"img_s", nullptr},
                                   {"img_s_per_process", nullptr},
                                   {"test_loss", nullptr},
                                   {"accuracy", nullptr},
                                   {"top5", nullptr},
                                   {"macro_f1", nullptr},
                                   {"best_epoch", nullptr},
                                   {"judged_by", judge()}};
  report.update(report_common(test != nullptr));
  report["classes"] = names_of(judge_images_.loader.dataset());
  report["confusion"] = nullptr;
  if (best_.accuracy >= 0 && best_.epoch > 0) report["best_epoch"] = best_.epoch;
  if (total_.images > 0) report["img_s"] = rate(total_.images, total_.seconds);
  if (total_.images > 0) report["img_s_per_process"] = rate(total_.images / ranks_.size(), total_.seconds);
  if (test != nullptr && std::isfinite(test->loss)) report["test_loss"] = test->loss;
  if (test != nullptr) report["accuracy"] = test->confusion.accuracy();
  if (test != nullptr && test->top5) report["top5"] = *test->top5;
  if (test != nullptr) {
    report["macro_f1"] = test->confusion.macro_f1();
    report["per_class"] = per_class(test->confusion, names_of(judge_images_.loader.dataset()));
    report["mistakes"] = to_json(test->mistakes, names_of(judge_images_.loader.dataset()));
  }
  std::string text = examples::to_json_text(report);
  constexpr std::string_view kNone = "\"confusion\": null";
  if (test != nullptr)
    text.replace(text.rfind(kNone), kNone.size(), "\"confusion\": " + rows_of(test->confusion));
  return text;
}

void Trainer::show_mistakes(const TestResult& test) try {
  if (run_folder_ != nullptr)
    log_mistakes(test.mistakes, *(final_ ? *final_ : judge_images_).all, trained_,
                 names_of(judge_images_.loader.dataset()), *run_folder_);
} catch (const Error& error) {  // an image that is gone
  examples::complain("warning: mistakes are not shown: {}", error.what());
}

std::string Trainer::weakest(const TestResult& test) const {
  return weakest_classes(test.confusion, names_of(judge_images_.loader.dataset()));
}

std::string Trainer::best_so_far() const {
  if (best_.accuracy < 0) return {};
  return fmt::format("{:<12} {:.2f} % after {} {}\n", fmt::format("best {}", judge()), 100.0 * best_.accuracy,
                     best_.epoch > 0 ? "epoch" : "step", best_.epoch > 0 ? best_.epoch : best_.step);
}

}  // namespace train_resnet
