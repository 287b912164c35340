#include "verifier.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/formats/image_folder.h>
#include <sinter/nn/data/records/verification_set.h>
#include <sinter/nn/data/sample_random.h>

#include "common/text.h"
#include "run/output_files.h"

namespace train_insightface {

using namespace sinter;
namespace fs = std::filesystem;
using Pairs = std::vector<std::pair<int64_t, int64_t>>;

namespace {

// Of more images than these, not all pairs are looked at.
constexpr int64_t kMostOfAll = 3000;
// More pairs of a kind than this are not written down, but drawn.
constexpr int64_t kMostListed = 20'000'000;

/// Brings `values` into a random order, always the same, and keeps `most` of them.
void shuffle(Pairs& values, int64_t most, uint64_t stream) {
  nn::data::SampleRandom random(0, 0, stream);
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
  if (static_cast<int64_t>(values.size()) > most) values.resize(static_cast<size_t>(most));
}

/// All pairs of images of one person.
Pairs same_pairs(const std::vector<int64_t>& people) {
  std::map<int64_t, std::vector<int64_t>> images;
  for (size_t i = 0; i < people.size(); ++i) images[people[i]].push_back(static_cast<int64_t>(i));
  Pairs pairs;
  for (const auto& [person, own] : images) {
    for (size_t a = 0; a < own.size(); ++a) {
      for (size_t b = a + 1; b < own.size(); ++b) pairs.emplace_back(own[a], own[b]);
    }
    SINTER_CHECK(static_cast<int64_t>(pairs.size()) <= kMostListed,
                 "person {} has too many images to pair: {}", person, own.size());
  }
  return pairs;
}

/// `count` different pairs of images of different people, of `there_are`.
Pairs different_pairs(const std::vector<int64_t>& people, int64_t count, int64_t there_are) {
  const auto images = static_cast<int64_t>(people.size());
  const auto differ = [&](int64_t a, int64_t b) {
    return people[static_cast<size_t>(a)] != people[static_cast<size_t>(b)];
  };
  if (there_are <= 2 * count) {
    Pairs all;
    for (int64_t a = 0; a < images; ++a) {
      for (int64_t b = a + 1; b < images; ++b) {
        if (differ(a, b)) all.emplace_back(a, b);
      }
    }
    shuffle(all, count, 2);
    return all;
  }
  nn::data::SampleRandom random(0, 0, 3);
  std::set<std::pair<int64_t, int64_t>> drawn;
  Pairs pairs;
  while (static_cast<int64_t>(pairs.size()) < count) {
    const auto a = static_cast<int64_t>(random.below(static_cast<uint64_t>(images)));
    const auto b = static_cast<int64_t>(random.below(static_cast<uint64_t>(images)));
    if (differ(a, b) && drawn.insert(std::minmax(a, b)).second)
      pairs.emplace_back(std::min(a, b), std::max(a, b));
  }
  return pairs;
}

std::vector<int64_t> people_of_folder(const fs::path& folder) {
  std::vector<int64_t> people;
  for (const auto& file : nn::data::list_image_folder(folder).files)
    people.push_back(static_cast<int64_t>(file.label));
  return people;
}

nn::BalancedResult compare_all(const std::vector<int64_t>& people, const Embeddings& embeddings) {
  const auto images = static_cast<int64_t>(people.size());
  std::vector<double> distances;
  std::vector<uint8_t> same;
  for (int64_t a = 0; a < images; ++a) {
    for (int64_t b = a + 1; b < images; ++b) {
      distances.push_back(squared_distance(embeddings.row(a), embeddings.row(b)));
      same.push_back(people[static_cast<size_t>(a)] == people[static_cast<size_t>(b)] ? 1 : 0);
    }
  }
  return nn::best_balanced_accuracy(distances, same);
}

/// What logs and reports call a set: the file's name without its ending, or the folder's.
std::string name_of(const fs::path& path, bool is_folder) {
  fs::path whole = fs::absolute(path).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  std::string name = (is_folder ? whole.filename() : whole.stem()).string();
  for (char& c : name) {
    if (c < '!' || c > '~') c = '_';  // tags of logs are UTF-8, file names may be anything
  }
  return name;
}

}  // namespace

FacePairs balanced_pairs(const std::vector<int64_t>& people, int64_t most) {
  Pairs same = same_pairs(people);
  const auto images = static_cast<int64_t>(people.size());
  const int64_t different_there = images * (images - 1) / 2 - static_cast<int64_t>(same.size());
  SINTER_CHECK(!same.empty() && different_there > 0,
               "expected at least two people, and two images of one, but got {} in {} of one person",
               examples::counted(images, "image"), examples::counted(same.size(), "pair"));
  const int64_t count = std::min({static_cast<int64_t>(same.size()), different_there, most});
  shuffle(same, count, 1);
  const Pairs different = different_pairs(people, count, different_there);
  FacePairs faces;
  faces.people = people;
  for (size_t i = 0; i < same.size(); ++i) {
    faces.pairs.push_back(same[i]);
    faces.same.push_back(1);
    faces.pairs.push_back(different[i]);
    faces.same.push_back(0);
  }
  return faces;
}

namespace {

FacePairs open_pairs(const std::string& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  if (!is_folder && !fs::exists(path, ignored))
    throw Error(fmt::format("--verify {}: there is no such file or folder", path));
  try {
    FacePairs faces;
    if (is_folder && !fs::exists(fs::path(path) / "pairs.txt", ignored)) {
      faces = balanced_pairs(people_of_folder(path));
      faces.images = nn::data::open_image_folder(path);
    } else {
      const nn::data::VerificationSet set = nn::data::open_verification_set(path);
      faces.images = set.images;
      faces.same = set.same;
      for (int64_t i = 0; i < set.pairs(); ++i) faces.pairs.emplace_back(2 * i, 2 * i + 1);
    }
    faces.name = name_of(path, is_folder);
    if (faces.pairs.size() < 10)
      throw Error(fmt::format("--verify {}: ten pairs are needed, there are {}", path, faces.pairs.size()));
    return faces;
  } catch (const InvalidArgument& error) {
    throw Error(fmt::format("--verify {}: {}", path, error.what()));
  }
}

}  // namespace

std::vector<FacePairs> open_all_pairs(const std::vector<std::string>& paths) {
  std::vector<FacePairs> all;
  std::set<std::string> names;
  for (const std::string& path : paths) {
    FacePairs faces = open_pairs(path);
    std::string name = faces.name;
    for (int number = 2; !names.insert(name).second; ++number)
      name = fmt::format("{}-{}", faces.name, number);
    faces.name = name;
    all.push_back(std::move(faces));
  }
  return all;
}

namespace {

/// What rank `rank` has of `count` things, each of which belongs to one: [first, second).
std::pair<int64_t, int64_t> part_of(int64_t count, int rank, int ranks) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

std::shared_ptr<const nn::data::Dataset> part_of_images(const FacePairs& faces, int64_t begin, int64_t end) {
  if (begin == 0 && end == faces.images->size()) return faces.images;
  std::vector<int64_t> indices(static_cast<size_t>(end - begin));
  std::iota(indices.begin(), indices.end(), begin);
  return std::make_shared<nn::data::Subset>(faces.images, std::move(indices));
}

/// The rows of all ranks, each of which has its part_of() them, in their order.
template <class T>
std::vector<T> gather_rows(std::vector<T> own, int64_t rows, int64_t dims, const Communicator& ranks) {
  const int64_t most = (rows + ranks.size() - 1) / ranks.size();
  own.resize(static_cast<size_t>(most * dims));  // all give as much
  const Tensor gathered = ranks.all_gather(Tensor::from_values(own, {most, dims}));
  const std::vector<T> padded = gathered.template to_vector<T>();
  std::vector<T> all;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const auto [begin, end] = part_of(rows, rank, ranks.size());
    const auto from = padded.begin() + rank * most * dims;
    all.insert(all.end(), from, from + (end - begin) * dims);
  }
  return all;
}

}  // namespace

std::optional<ComparedPairs> compare(const FacePairs& faces, const nn::AnyModule& backbone,
                                     const Options& options, Device device, int rank, int ranks) {
  const bool flip = options.verify_flip == "sum";
  ComparedPairs result;
  result.embeddings.dims = options.dims;
  std::optional<Norms> norms;
  if (faces.people.empty()) {
    const auto [begin, end] = part_of(static_cast<int64_t>(faces.pairs.size()), rank, ranks);
    std::vector<float> first;
    norms = for_each_embedding(backbone, options, device, part_of_images(faces, 2 * begin, 2 * end), flip,
                               [&](std::span<float> row) {
                                 make_unit(row);
                                 if (first.empty()) {
                                   first.assign(row.begin(), row.end());
                                   return;
                                 }
                                 result.distances.push_back(squared_distance(first, row));
                                 first.clear();
                               });
  } else {
    const auto [begin, end] = part_of(faces.images->size(), rank, ranks);
    norms = for_each_embedding(backbone, options, device, part_of_images(faces, begin, end), flip,
                               [&](std::span<float> row) {
                                 make_unit(row);
                                 auto& values = result.embeddings.values;
                                 values.insert(values.end(), row.begin(), row.end());
                               });
  }
  if (!norms) return std::nullopt;
  result.norms = *norms;
  return result;
}

ComparedPairs gather(const FacePairs& faces, ComparedPairs part, const Communicator& ranks) {
  if (ranks.size() == 1) return part;
  if (faces.people.empty()) {
    part.distances =
        gather_rows(std::move(part.distances), static_cast<int64_t>(faces.pairs.size()), 1, ranks);
  } else {
    part.embeddings.values =
        gather_rows(std::move(part.embeddings.values), faces.images->size(), part.embeddings.dims, ranks);
  }
  const Tensor norms = Tensor::from_values(std::vector<double>{part.norms.sum, part.norms.count}, {2});
  ranks.all_reduce_(norms);
  part.norms = {norms.data<double>()[0], norms.data<double>()[1]};
  return part;
}

VerifiedSet judge(const FacePairs& faces, const ComparedPairs& compared) {
  std::vector<double> distances = compared.distances;
  if (!faces.people.empty()) {
    for (const auto& [first, second] : faces.pairs)
      distances.push_back(squared_distance(compared.embeddings.row(first), compared.embeddings.row(second)));
  }
  VerifiedSet result{.name = faces.name,
                     .pairs = static_cast<int64_t>(faces.pairs.size()),
                     .folds = nn::verify_pairs(distances, faces.same),
                     .mean_norm = compared.norms.mean(),
                     .balanced = {},
                     .curve = {}};
  const auto genuine = std::ranges::count(faces.same, uint8_t{1});
  if (genuine > 0 && genuine < result.pairs) {
    std::vector<float> cosines;
    for (const double distance : distances) cosines.push_back(static_cast<float>(nn::cosine_of(distance)));
    const nn::Roc roc(cosines, faces.same);
    result.curve = {roc.area(), roc.tar_at_far(1000), roc.tar_at_far(100), roc.curve()};
  }
  const auto images = static_cast<int64_t>(faces.people.size());
  if (images > 0 && images <= kMostOfAll) {
    result.balanced = compare_all(faces.people, compared.embeddings);
    result.all_pairs = images * (images - 1) / 2;
  }
  return result;
}

std::optional<VerifiedSet> verify(const FacePairs& faces, const nn::AnyModule& backbone,
                                  const Options& options, Device device) {
  const std::optional<ComparedPairs> compared = compare(faces, backbone, options, device);
  return compared ? std::optional(judge(faces, *compared)) : std::nullopt;
}

namespace {

// Fewer impostors than this say little of a rate.
constexpr int64_t kFew = 30;

std::string text_of(const nn::TarAtFar& at) {
  if (at.allowed == 0) return "-";
  return fmt::format("{:.2f} % (k {}{})", 100 * at.tar, at.allowed, at.allowed < kFew ? ", few" : "");
}

nlohmann::ordered_json json_of(const nn::TarAtFar& at, double far) {
  nlohmann::ordered_json json = {{"far", far}, {"impostors_allowed", at.allowed}};
  json["threshold"] = at.allowed > 0 ? nlohmann::ordered_json(at.threshold) : nullptr;
  json["tar"] = at.allowed > 0 ? nlohmann::ordered_json(at.tar) : nullptr;
  return json;
}

}  // namespace

std::string to_string(const VerifiedSet& set) {
  std::string text = fmt::format(
      "{}: accuracy {:.2f} +- {:.2f} % ({}, threshold {:.2f}, cosine {:.3f})  XNorm {:.2f}", set.name,
      100 * set.folds.accuracy, 100 * set.folds.std, examples::counted(set.pairs, "pair"),
      set.folds.threshold, nn::cosine_of(set.folds.threshold), set.mean_norm);
  if (set.curve) {
    text += fmt::format("  AUC {:.4f}  TAR at FAR 1e-3 {}, 1e-2 {}", set.curve->area,
                        text_of(set.curve->at_1e3), text_of(set.curve->at_1e2));
  }
  if (set.balanced) {
    text += fmt::format("  all {} pairs, balanced: {:.2f} % at {:.2f}", set.all_pairs,
                        100 * set.balanced->accuracy, set.balanced->threshold);
  }
  return text;
}

std::string table_of_folds(const VerifiedSet& set) {
  std::string text = "  fold  accuracy  threshold  cosine\n";
  for (size_t i = 0; i < set.folds.folds.size(); ++i) {
    const nn::VerificationFold& fold = set.folds.folds[i];
    text += fmt::format("  {:>4}  {:>6.2f} %  {:>9.2f}  {:>6.3f}\n", i + 1, 100 * fold.accuracy,
                        fold.threshold, nn::cosine_of(fold.threshold));
  }
  return text;
}

void check_curves(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(fmt::format("--roc {}: cannot be made: {}", folder.string(), error.message()));
  examples::check_file("--roc", folder / "roc.csv");
}

void write_curve(const fs::path& folder, const std::string& name, const std::vector<nn::RocPoint>& points) {
  std::string text = "threshold,far,tar\n";
  for (const nn::RocPoint& point : points)
    text += fmt::format("{:.9g},{:.9g},{:.9g}\n", point.threshold, point.far, point.tar);
  examples::write_text(folder / ("roc-" + name + ".csv"), text);
}

void write_curves(const fs::path& folder, const std::vector<VerifiedSet>& sets) {
  for (const VerifiedSet& set : sets) {
    if (set.curve) write_curve(folder, set.name, set.curve->points);
  }
}

nlohmann::ordered_json to_json(const std::vector<VerifiedSet>& sets) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const VerifiedSet& set : sets) {
    nlohmann::ordered_json& own = json[set.name];
    own = {{"accuracy", set.folds.accuracy},   {"deviation", set.folds.std},
           {"threshold", set.folds.threshold}, {"cosine_threshold", nn::cosine_of(set.folds.threshold)},
           {"xnorm", set.mean_norm},           {"pairs", set.pairs}};
    for (const nn::VerificationFold& fold : set.folds.folds) {
      own["folds"].push_back({{"accuracy", fold.accuracy},
                              {"threshold", fold.threshold},
                              {"cosine_threshold", nn::cosine_of(fold.threshold)}});
    }
    if (set.curve) {
      own["auc"] = set.curve->area;
      own["tar_at_far"] = {json_of(set.curve->at_1e3, 1e-3), json_of(set.curve->at_1e2, 1e-2)};
    }
    if (set.balanced) own["balanced_accuracy"] = set.balanced->accuracy;
  }
  return json;
}

}  // namespace train_insightface
