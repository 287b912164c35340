// The report of a job as an HTML file: read back, and compared with what the job and its passes say.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <gtest/gtest.h>

#include <sinter/core/profile/profile.h>
#include <sinter/nn/job/html/graph_diff.h>
#include <sinter/nn/job/html/html_text.h>
#include <sinter/nn/job/html/memory_drawing.h>
#include <sinter/nn/job/infer_job.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/passes/pipeline.h>

#include "common/error_message.h"
#include "common/temporary_folder.h"
#include "nn/job/html/page_reader.h"
#include "nn/job/job_test_support.h"

namespace sinter::nn {
namespace {

using namespace testing;
using test::message_of;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const PageElement& section(const PageElement& page, const std::string& id) {
  for (const PageElement* each : page.all("section")) {
    if (each->attributes.at("id") == id) return *each;
  }
  throw std::runtime_error("no section " + id);
}

/// A small ResNet, trained for some steps and profiled.
class HtmlReport : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceType::kCpu) return;
    if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
    settings::set_autotune(false);
  }
  Device device() const { return Device{GetParam(), 0}; }
  DType half() const { return DType::kBFloat16; }
  std::string write(const TrainJob& job, const HtmlReportOptions& options = {}) const {
    job.write_report(folder_.path() / "report.html", options);
    return text_of(folder_.path() / "report.html");
  }

  sinter::testing::TemporaryFolder folder_;
};

/// Numbers in "12 → 34 calls" of a pass's summary, or nothing where the graph stayed as it was.
std::optional<std::pair<size_t, size_t>> counts_of(const PageElement& pass) {
  const std::string& head = pass.all("summary").front()->text;
  const size_t arrow = head.find(" → ");
  if (arrow == std::string::npos) return std::nullopt;
  const size_t before = head.rfind(' ', arrow - 1);
  return std::pair(std::stoul(head.substr(before + 1)), std::stoul(head.substr(arrow + 5)));
}

/// Calls that a pass's drawing shows on one side, by mark.
std::map<std::string, size_t> marks(const PageElement& pass, size_t side) {
  std::map<std::string, size_t> counts;
  for (const PageElement* pair : pass.all("div", "pair")) {
    const auto figures = pair->all("figure");
    EXPECT_EQ(figures.size(), 2u);
    for (const PageElement* box : figures[side]->all("g", "n")) {
      for (const char* mark : {"same", "changed", "moved", "removed", "added"}) {
        if (box->has_class(mark)) ++counts[mark];
      }
    }
  }
  for (const PageElement* run : pass.all("ol", "run")) counts["same"] += run->children.size();
  return counts;
}

size_t sum(const std::map<std::string, size_t>& counts) {
  size_t all = 0;
  for (const auto& [name, count] : counts) all += count;
  return all;
}

TEST_P(HtmlReport, DrawsEveryCallOnceOnEachSideAndMarksWhatPassesReport) {
  const ResNet model = resnet20({.classes = 10, .in_channels = 3, .width = 8});
  model.to(device());
  SGD sgd(model.parameters(), {.momentum = 0.9});
  TrainJob job(model, CrossEntropyLoss{}, sgd, {.precision = half(), .layout = Layout::kNHWC});
  const Tensor x = floats({4, 3, 16, 16}, 1).to(device()), y = labels(4, 10, 1).to(device());
  job.step(x, y, 0.1);
  const PageElement page = read_page(write(job));
  const std::string report = job.report();
  std::set<std::string> passes_shown;
  size_t last_count = 0;
  for (const PageElement* pass : section(page, "passes").all("details", "pass")) {
    const std::string name = pass->all("b").front()->text;
    passes_shown.insert(name);
    const auto counts = counts_of(*pass);
    if (!counts) {
      EXPECT_TRUE(pass->all("svg").empty()) << name;
      continue;
    }
    const auto before = marks(*pass, 0), after = marks(*pass, 1);
    EXPECT_EQ(sum(before), counts->first) << name;
    EXPECT_EQ(sum(after), counts->second) << name;
    EXPECT_FALSE(before.contains("added")) << name;
    EXPECT_FALSE(after.contains("removed")) << name;
    for (const char* mark : {"same", "changed", "moved"}) {
      EXPECT_EQ(before.contains(mark) ? before.at(mark) : 0, after.contains(mark) ? after.at(mark) : 0)
          << name;
    }
    EXPECT_EQ(counts->first, last_count == 0 ? counts->first : last_count) << name << " begins elsewhere";
    last_count = counts->second;
    // The same numbers as the text report has.
    const size_t line = report.find("\n    " + name + " ");
    if (name.find(' ') == std::string::npos) {
      ASSERT_NE(line, std::string::npos) << name;
      const std::string end = fmt::format("{:5} -> {} calls", counts->first, counts->second);
      EXPECT_NE(report.substr(line, 100).find(end), std::string::npos) << name << report.substr(line, 100);
    }
  }
  for (const auto all : {passes::forward_passes(), passes::step_passes()}) {
    for (const passes::Pass& pass : all) EXPECT_TRUE(passes_shown.contains(pass.name)) << pass.name;
  }
  EXPECT_EQ(last_count, job.program().graph().node_count());
}

TEST_P(HtmlReport, ShowsTheWordsOfEachPassAndEachKernel) {
  const ResNet model = resnet20({.classes = 10, .in_channels = 3, .width = 8});
  model.to(device());
  SGD sgd(model.parameters());
  TrainJob job(model, CrossEntropyLoss{}, sgd);
  const Tensor x = floats({4, 3, 16, 16}, 1).to(device()), y = labels(4, 10, 1).to(device());
  job.step(x, y, 0.1);
  job.step(floats({2, 3, 16, 16}, 1).to(device()), labels(2, 10, 1).to(device()), 0.1);
  const std::string text = write(job);
  const PageElement page = read_page(text);
  // Lines below passes in report(), of the graph used last.
  std::string report = job.report();
  report = report.substr(report.rfind("graph for "));
  std::vector<std::string> done, missed;
  for (const PageElement* list : section(page, "passes").all("ul")) {
    for (const PageElement& line : list->children)
      (list->has_class("done") ? done : missed).push_back(line.text);
  }
  EXPECT_GE(done.size(), 18u) << "each norm was fused";
  for (const std::string& line : done)
    EXPECT_NE(html::escaped(report).find("      " + line + "\n"), std::string::npos) << line;
  for (const std::string& line : missed)
    EXPECT_NE(html::escaped(report).find("      not: " + line + "\n"), std::string::npos) << line;
  const auto rows = section(page, "kernels").all("tbody").front()->all("tr");
  const std::vector<ProgramCall> calls = job.program().calls();
  ASSERT_EQ(rows.size(), calls.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]->children[1].text, calls[i].node->op->name());
    EXPECT_EQ(rows[i]->children[4].text.substr(0, calls[i].kernel.size()), calls[i].kernel);
  }
  EXPECT_EQ(section(page, "others").all("pre").size(), 1u) << "the other batch's";
}

TEST_P(HtmlReport, ShowsCallsMemoryAndWhatItIsGiven) {
  const ResNet model = resnet20({.classes = 10, .in_channels = 3, .width = 8});
  model.to(device());
  SGD sgd(model.parameters());
  TrainJob job(model, CrossEntropyLoss{}, sgd);
  const Tensor x = floats({4, 3, 16, 16}, 1).to(device()), y = labels(4, 10, 1).to(device());
  job.step(x, y, 0.1);
  OpProfile profile({.by_scope = true});
  for (int i = 0; i < 2; ++i) job.step(x, y, 0.1);
  profile.stop();
  const PageElement page = read_page(write(job, {.title = "of <mine> & yours",
                                                 .profile = &profile,
                                                 .profiled_steps = 2,
                                                 .step_us = 1e9,
                                                 .tables = {{.title = "Forecast",
                                                             .text = "what it will take",
                                                             .columns = {"part", "MB"},
                                                             .rows = {{"weights <b>", "12"}}}}}));
  EXPECT_EQ(page.all("h1").front()->text, "of &lt;mine&gt; &amp; yours");
  EXPECT_EQ(section(page, "table1").all("td").front()->text, "weights &lt;b&gt;");
  double calls = 0, microseconds = 0, total = 0;
  for (const PageElement* row : section(page, "calls").all("tbody").front()->all("tr")) {
    calls += std::stod(row->children[3].text);
    microseconds += std::stod(row->children[4].text);
  }
  for (const OpProfile::Row& row : profile.rows()) total += row.device_us / 2;
  EXPECT_EQ(calls, static_cast<double>(job.program().stats().calls));
  EXPECT_NEAR(microseconds, total, 0.01 * total + 1.0);
  EXPECT_NE(section(page, "gaps").text.find("pass between the calls"), std::string::npos);

  // Every buffer is a rectangle, none overlaps another while both live, and the peak is the plan's.
  const Program& program = job.program();
  size_t buffers = 0;
  for (const ProgramBuffer& buffer : program.buffers()) {
    buffers += buffer.bytes > 0 ? 1 : 0;
    EXPECT_LE(buffer.offset + buffer.bytes, program.stats().arena_bytes);
    for (const ProgramBuffer& other : program.buffers()) {
      if (&other == &buffer || other.last < buffer.first || buffer.last < other.first) continue;
      EXPECT_TRUE(buffer.offset + buffer.bytes <= other.offset ||
                  other.offset + other.bytes <= buffer.offset);
    }
  }
  const auto pictures = section(page, "memory").all("svg", "memory");
  ASSERT_EQ(pictures.size(), 1u);
  EXPECT_EQ(pictures.front()->all("rect").size(), buffers);
  EXPECT_EQ(html::peak_of(program).bytes, program.stats().least_arena_bytes);
}

TEST_P(HtmlReport, NeedsNoOtherFileAndEveryPictureHasWords) {
  const ResNet model = resnet20({.classes = 10, .in_channels = 3, .width = 8});
  model.to(device());
  SGD sgd(model.parameters());
  TrainJob job(model, CrossEntropyLoss{}, sgd);
  job.step(floats({4, 3, 16, 16}, 1).to(device()), labels(4, 10, 1).to(device()), 0.1);
  const std::string text = write(job);
  EXPECT_EQ(text.find("http"), std::string::npos);
  EXPECT_EQ(text.find("url("), std::string::npos);
  EXPECT_EQ(text.find("@import"), std::string::npos);
  const PageElement page = read_page(text);
  for (const char* tag : {"img", "link", "iframe", "object"}) EXPECT_TRUE(page.all(tag).empty()) << tag;
  for (const PageElement* script : page.all("script")) EXPECT_FALSE(script->attributes.contains("src"));
  for (const PageElement* picture : page.all("svg")) {
    EXPECT_EQ(picture->attributes.at("role"), "img");
    EXPECT_GT(picture->attributes.at("aria-label").size(), 10u);
  }
  for (const PageElement* table : page.all("table")) EXPECT_FALSE(table->all("caption").empty());
  std::set<std::string> ids;
  for (const char* tag : {"section"}) {
    for (const PageElement* each : page.all(tag)) EXPECT_TRUE(ids.insert(each->attributes.at("id")).second);
  }
  for (const PageElement* link : page.all("a"))
    EXPECT_TRUE(ids.contains(link->attributes.at("href").substr(1)));
}

/// A part of a model whose name is an attack.
struct Odd : Module {
  Tensor forward(const Tensor& x) const override { return linear(x); }
  Linear linear = child("<script>alert('x')</script>&\"\x01\xff", Linear(3, 2));
};

TEST_P(HtmlReport, EscapesNamesOfTheModel) {
  const Odd model;
  model.to(device());
  SGD sgd(model.parameters());
  TrainJob job(model, MSELoss{}, sgd);
  job.step(floats({4, 3}, 1).to(device()), floats({4, 2}, 2).to(device()), 0.1);
  const std::string text = write(job);
  const PageElement page = read_page(text);
  EXPECT_EQ(page.all("script").size(), 1u) << "the page's own";
  EXPECT_NE(text.find("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;\\x01\\xff"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Devices, HtmlReport, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         [](const auto& given) {
                           return std::string(given.param == DeviceType::kCpu ? "cpu" : "cuda");
                         });

TEST(HtmlReportText, EscapesWhatOthersWrote) {
  EXPECT_EQ(html::escaped("<a href='x'>&\"\x01\xff"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\\x01\\xff");
  EXPECT_EQ(html::beginning("äöü", 3), "äöü");
  EXPECT_EQ(html::beginning("äöüß", 3), "äö…");
  EXPECT_EQ(html::ending("äöüß", 3), "…üß");
}

TEST(HtmlReportText, IsRefusedBeforeTheFirstStep) {
  const ResNet model = resnet20();
  SGD sgd(model.parameters());
  const TrainJob job(model, CrossEntropyLoss{}, sgd);
  EXPECT_EQ(message_of([&] { job.write_report("x.html"); }),
            "[train_job] there is no program before the first step");
  EXPECT_EQ(message_of([&] { InferJob(model).write_report("x.html"); }),
            "[infer_job] there is no program before the first call");
}

TEST(HtmlReportText, AReportOfResNet50HasAtMost3Megabytes) {
  const ResNet model = resnet50();
  SGD sgd(model.parameters(), {.momentum = 0.9});
  TrainJob job(model, CrossEntropyLoss{}, sgd, {.precision = DType::kBFloat16, .layout = Layout::kNHWC});
  const TensorSpec specs[] = {{{2, 3, 64, 64}, DType::kBFloat16, Device::cpu()},
                              {{2}, DType::kInt64, Device::cpu()}};
  job.prepare(specs);
  const sinter::testing::TemporaryFolder folder;
  job.write_report(folder.path() / "r.html");
  EXPECT_LE(std::filesystem::file_size(folder.path() / "r.html"), 3'000'000u);
  EXPECT_GE(read_page(text_of(folder.path() / "r.html")).all("svg").size(), 50u);
  const char* const kept = std::getenv("SINTER_KEEP_REPORT");
  if (kept != nullptr) job.write_report(kept);
}

}  // namespace
}  // namespace sinter::nn
