#include "ijb.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/data/formats/file_bytes.h>
#include <sinter/nn/data/image/files/image_file.h>

#include "common/stop.h"
#include "common/text.h"
#include "embedder.h"

namespace train_insightface {

using namespace sinter;
namespace fs = std::filesystem;
using nlohmann::ordered_json;
using nn::data::IjbSet;
using nn::data::TextLines;

namespace {

constexpr std::array<int64_t, 6> kFars = {1'000'000, 100'000, 10'000, 1000, 100, 10};
constexpr std::array<int64_t, 3> kFpirs = {1000, 100, 10};
constexpr std::array<int64_t, 3> kRanks = {1, 5, 10};
constexpr int64_t kFew = 30;
constexpr uint64_t kMostFileBytes = uint64_t{200} << 20;

/// The pictures, aligned, in the order of the templates.
class AlignedPictures final : public nn::data::Dataset {
 public:
  AlignedPictures(const IjbSet& set, std::vector<int64_t> order, int64_t size)
      : set_(set), order_(std::move(order)), expected_(nn::data::face_template(size)), size_(size) {}

  int64_t size() const override { return static_cast<int64_t>(order_.size()); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  void read(int64_t index, nn::data::Sample& sample, const nn::data::DecodeHintFunction&) const override {
    const auto place = static_cast<size_t>(order_[checked_index(index)]);
    const nn::data::IjbImage& picture = set_.images[place];
    const fs::path path = set_.pictures / picture.name;
    nn::data::Image whole;
    nn::data::decode_image(nn::data::read_file(path, kMostFileBytes), path.string(), {}, {}, whole);
    try {
      const auto move = nn::data::nearest_similarity(picture.points, expected_);
      nn::data::move_image(whole, move, size_, size_, sample.image);
    } catch (const InvalidArgument& error) {
      throw IoError(
          fmt::format("{}: its points in line {} of the lists: {}", path.string(), place + 1, error.what()));
    }
    sample.label = 0;
  }

 private:
  const IjbSet& set_;
  std::vector<int64_t> order_;
  nn::data::FivePoints expected_;
  int64_t size_;
  std::vector<std::string> class_names_{"face"};
};

/// Adds the embeddings of a set to templates, which come in the order of by_template().
class Pooling {
 public:
  Pooling(const IjbSet& set, const Options& options, int64_t dims)
      : set_(set), scores_(options.ijb_score == "use"), pool_(dims, options.ijb_lengths == "unit") {}

  void add(int64_t place, std::span<const float> row) {
    const nn::data::IjbImage& image = set_.images[static_cast<size_t>(place)];
    pool_.add(image.template_id, image.media_id, row, scores_ ? image.score : 1.0);
  }
  nn::Templates finish() { return pool_.finish(); }

 private:
  const IjbSet& set_;
  bool scores_;
  nn::TemplatePool pool_;
};

/// Scores of pairs, of which some thousand are computed at once.
class PairScores {
 public:
  explicit PairScores(const nn::Templates& templates) : templates_(templates) {}

  void add(size_t first, size_t second, bool genuine) {
    waiting_.push_back({first, second, genuine});
    if (waiting_.size() == kAtOnce) flush();
  }
  void flush() {
    scores_.resize(waiting_.size());
    parallel_for(static_cast<int64_t>(waiting_.size()), 256, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
        scores_[i] = templates_.compare(waiting_[i].first, waiting_[i].second);
    });
    for (size_t i = 0; i < waiting_.size(); ++i)
      (waiting_[i].genuine ? genuine_ : impostors_).push_back(scores_[i]);
    waiting_.clear();
  }
  nn::Roc finish() {
    flush();
    return nn::Roc(std::move(genuine_), std::move(impostors_));
  }

 private:
  struct Pair {
    size_t first, second;
    bool genuine;
  };
  static constexpr size_t kAtOnce = 65536;

  const nn::Templates& templates_;
  std::vector<Pair> waiting_;
  std::vector<float> scores_, genuine_, impostors_;
};

size_t row_of(const nn::Templates& templates, int64_t id, const TextLines& lines) {
  const std::optional<size_t> row = templates.find(id);
  if (!row) lines.fail(fmt::format("templates that have pictures (not {})", id));
  return *row;
}

std::optional<nn::Roc> compare_pairs(const IjbSet& set, const nn::Templates& templates) {
  PairScores scores(templates);
  TextLines lines(set.pairs);
  while (const std::optional<nn::data::IjbPair> pair = next_ijb_pair(lines)) {
    scores.add(row_of(templates, pair->first, lines), row_of(templates, pair->second, lines), pair->genuine);
    if (examples::stop_signal() != 0) return std::nullopt;
  }
  try {
    return scores.finish();
  } catch (const InvalidArgument& error) {
    throw IoError(fmt::format("{}: {}", set.pairs.string(), error.what()));
  }
}

std::vector<nn::Enrolled> read_enrolled(const fs::path& path, const nn::Templates& templates) {
  TextLines lines(path);
  std::vector<nn::Enrolled> enrolled;
  for (const nn::data::IjbSubject& one : read_ijb_subjects(lines)) {
    const std::optional<size_t> row = templates.find(one.template_id);
    if (!row) {
      throw IoError(
          fmt::format("{}, line {}: template {} has no pictures", path.string(), one.line, one.template_id));
    }
    enrolled.push_back({*row, one.subject});
  }
  return enrolled;
}

std::vector<IjbSearch> search_galleries(const IjbSet& set, const nn::Templates& templates) {
  std::vector<IjbSearch> searches;
  if (set.galleries.empty()) return searches;
  const std::vector<nn::Enrolled> probes = read_enrolled(set.probes, templates);
  for (size_t i = 0; i < set.galleries.size() && examples::stop_signal() == 0; ++i) {
    const std::vector<nn::Enrolled> gallery = read_enrolled(set.galleries[i], templates);
    try {
      searches.push_back({set.gallery_names[i], static_cast<int64_t>(gallery.size()),
                          nn::identify(templates, gallery, probes, kRanks, kFpirs)});
    } catch (const InvalidArgument& error) {
      throw IoError(fmt::format("{}: {}", set.galleries[i].string(), error.what()));
    }
  }
  return searches;
}

}  // namespace

IjbSet open_ijb_set(const Options& options) {
  try {
    return nn::data::open_ijb(options.ijb);
  } catch (const IoError& error) {
    throw Error(fmt::format("--ijb {}: {}", options.ijb, error.what()));
  }
}

std::optional<nn::Templates> embed_templates(const IjbSet& set, const nn::AnyModule& backbone,
                                             const Options& options, Device device) {
  if (options.image_size % 112 != 0 && options.image_size % 128 != 0) {
    throw Error(fmt::format("--ijb: faces are aligned to a multiple of 112 or 128 pixels, --image-size is {}",
                            options.image_size));
  }
  const std::vector<int64_t> order = set.by_template();
  Pooling pooling(set, options, options.dims);
  size_t at = 0;
  const auto faces = std::make_shared<AlignedPictures>(set, order, options.image_size);
  const auto norms = for_each_embedding(backbone, options, device, faces, options.verify_flip == "sum",
                                        [&](std::span<float> row) { pooling.add(order[at++], row); });
  if (!norms) return std::nullopt;
  return pooling.finish();
}

nn::Templates read_templates(const IjbSet& set, const Options& options) {
  const nn::Safetensors file = nn::read_safetensors(options.ijb_embeddings);
  const auto found = file.tensors.find("embeddings");
  const auto count = static_cast<int64_t>(set.images.size());
  const bool fits = found != file.tensors.end() && found->second.dtype() == DType::kFloat32 &&
                    found->second.shape().rank() == 2 && found->second.shape()[0] == count &&
                    found->second.shape()[1] > 0;
  if (!fits) {
    throw Error(fmt::format(
        "--ijb-embeddings {}: expected the tensor 'embeddings' ({}, D) in float32 but got {}",
        options.ijb_embeddings, count,
        found == file.tensors.end() ? "none of this name"
                                    : fmt::format("{} {}", found->second.dtype(), found->second.shape())));
  }
  const int64_t dims = found->second.shape()[1];
  const float* const rows = found->second.data<float>();
  Pooling pooling(set, options, dims);
  for (const int64_t place : set.by_template())
    pooling.add(place, {rows + place * dims, static_cast<size_t>(dims)});
  return pooling.finish();
}

std::optional<IjbResult> compare_templates(const IjbSet& set, const nn::Templates& templates) {
  const std::optional<nn::Roc> roc = compare_pairs(set, templates);
  if (!roc) return std::nullopt;
  IjbResult result{.name = set.name,
                   .images = static_cast<int64_t>(set.images.size()),
                   .templates = static_cast<int64_t>(templates.size()),
                   .genuine = roc->genuine(),
                   .impostors = roc->impostors(),
                   .rows = {},
                   .area = roc->area(),
                   .curve = roc->curve(),
                   .searches = {}};
  for (const int64_t one_in : kFars)
    result.rows.push_back({one_in, roc->tar_at_far(one_in), roc->nearest_to_far(one_in)});
  result.searches = search_galleries(set, templates);
  if (examples::stop_signal() != 0) return std::nullopt;
  return result;
}

namespace {

std::string rate(int64_t one_in) {
  return fmt::format("{:.0e}", 1.0 / static_cast<double>(one_in));
}

std::string with_mark(int64_t allowed) {
  return fmt::format("{}{}", allowed, allowed < kFew ? "*" : " ");
}

/// The mean over galleries.
template <class Value>
double mean(const std::vector<IjbSearch>& searches, const Value& value) {
  double sum = 0.0;
  for (const IjbSearch& search : searches) sum += value(search.result) / static_cast<double>(searches.size());
  return sum;
}

/// Whether all galleries have non-mated probes.
bool all_open(const std::vector<IjbSearch>& searches) {
  return std::ranges::all_of(searches, [](const IjbSearch& s) { return !s.result.open_set.empty(); });
}

ordered_json means_of(const std::vector<IjbSearch>& searches) {
  ordered_json json = ordered_json::object();
  for (size_t i = 0; i < kRanks.size(); ++i)
    json[fmt::format("rank_{}", kRanks[i])] = mean(searches, [&](const auto& r) { return r.found[i]; });
  for (size_t i = 0; i < kFpirs.size() && all_open(searches); ++i) {
    json["fnir_at_fpir"].push_back(
        {{"fpir", 1.0 / static_cast<double>(kFpirs[i])},
         {"fnir", mean(searches, [&](const auto& r) { return r.open_set[i].fnir; })}});
  }
  return json;
}

std::string table_of_searches(const IjbResult& result) {
  std::string text = "1:N     templates    mated  strangers    rank 1    rank 5   rank 10\n";
  for (const IjbSearch& search : result.searches) {
    const auto& own = search.result;
    text +=
        fmt::format("  {:<5} {:>9} {:>8} {:>10}", search.gallery, search.templates, own.mated, own.non_mated);
    for (const double found : own.found) text += fmt::format("  {:>6.2f} %", 100 * found);
    text += '\n';
  }
  text += fmt::format("  {:<34}", "mean");
  for (size_t i = 0; i < kRanks.size(); ++i)
    text +=
        fmt::format("  {:>6.2f} %", 100 * mean(result.searches, [&](const auto& r) { return r.found[i]; }));
  text += "\n        FPIR        k   threshold      FNIR\n";
  for (size_t i = 0; i < kFpirs.size(); ++i) {
    for (const IjbSearch& search : result.searches) {
      if (search.result.open_set.empty()) continue;
      const nn::FnirAtFpir& at = search.result.open_set[i];
      text += fmt::format("  {:<4} {}  {:>8}  {:>9.4f}  {:>6.2f} %\n", search.gallery, rate(at.one_in),
                          with_mark(at.allowed), at.threshold, 100 * at.fnir);
    }
    if (all_open(result.searches)) {
      text += fmt::format("  mean {}{:>29.2f} %\n", rate(kFpirs[i]),
                          100 * mean(result.searches, [&](const auto& r) { return r.open_set[i].fnir; }));
    }
  }
  return text;
}

}  // namespace

std::string to_table(const IjbResult& result) {
  std::string text = fmt::format(
      "{}: {} in {}\n1:1  {}, {}, AUC {:.6f}\n", result.name, examples::counted(result.images, "picture"),
      examples::counted(result.templates, "template"), examples::counted(result.genuine, "genuine pair"),
      examples::counted(result.impostors, "impostor"), result.area);
  text += "       FAR        k   threshold       TAR  insightface's rule\n";
  for (const IjbResult::Row& row : result.rows) {
    const std::string tar = row.exact.allowed > 0 ? fmt::format("{:.2f} %", 100 * row.exact.tar) : "-";
    text += fmt::format("     {}  {:>8}  {:>9.4f}  {:>8}  {:>6.2f} % at {:.2e}\n", rate(row.one_in),
                        with_mark(row.exact.allowed), row.exact.threshold, tar, 100 * row.insightface.tar,
                        row.insightface.far);
  }
  text += result.searches.empty() ? "1:N  the set has no files for it\n" : table_of_searches(result);
  return text + fmt::format("* fewer than {} impostors (k) decide\n", kFew);
}

ordered_json to_json(const IjbResult& result, const Options& options) {
  ordered_json json = {{"name", result.name},
                       {"pictures", result.images},
                       {"templates", result.templates},
                       {"flip", options.ijb_embeddings.empty() ? ordered_json(options.verify_flip) : nullptr},
                       {"lengths", options.ijb_lengths},
                       {"score", options.ijb_score},
                       {"genuine", result.genuine},
                       {"impostors", result.impostors},
                       {"auc", result.area},
                       {"tar_at_far", ordered_json::array()},
                       {"identification", ordered_json::array()}};
  for (const IjbResult::Row& row : result.rows) {
    const bool none = row.exact.allowed == 0;
    json["tar_at_far"].push_back({{"far", 1.0 / static_cast<double>(row.one_in)},
                                  {"impostors_allowed", row.exact.allowed},
                                  {"threshold", row.exact.threshold},
                                  {"tar", none ? ordered_json(nullptr) : ordered_json(row.exact.tar)},
                                  {"insightface_far", row.insightface.far},
                                  {"insightface_tar", row.insightface.tar}});
  }
  for (const IjbSearch& search : result.searches) {
    ordered_json own = {{"gallery", search.gallery},
                        {"templates", search.templates},
                        {"mated", search.result.mated},
                        {"non_mated", search.result.non_mated}};
    for (size_t i = 0; i < kRanks.size(); ++i)
      own[fmt::format("rank_{}", kRanks[i])] = search.result.found[i];
    for (const nn::FnirAtFpir& at : search.result.open_set) {
      own["fnir_at_fpir"].push_back({{"fpir", 1.0 / static_cast<double>(at.one_in)},
                                     {"strangers_allowed", at.allowed},
                                     {"threshold", at.threshold},
                                     {"fnir", at.fnir}});
    }
    json["identification"].push_back(std::move(own));
  }
  if (!result.searches.empty()) json["identification_mean"] = means_of(result.searches);
  return json;
}

}  // namespace train_insightface
