// How well embeddings tell whether two faces are one person's: the pairs of --verify, and what they give.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <sinter/core/comm/communicator.h>
#include <sinter/nn/data/dataset.h>
#include <sinter/nn/metrics/roc.h>
#include <sinter/nn/metrics/verification.h>
#include <sinter/nn/module/module.h>

#include "embedder.h"
#include "options.h"

namespace train_insightface {

/// Images, and pairs of them. Where people are not known, pair i is of images 2i and 2i + 1.
struct FacePairs {
  std::string name;
  std::shared_ptr<const sinter::nn::data::Dataset> images;
  std::vector<std::pair<int64_t, int64_t>> pairs;  // of indices
  std::vector<uint8_t> same;                       // 1 where a pair is of one person
  /// The person of each image, where that is known; empty in sets that only list pairs.
  std::vector<int64_t> people;
};

/// All pairs of one person's images, and as many of different people's, drawn at random but always the same;
/// in turns, in an order that is random too, so that every fold has both kinds. Of more than `most` pairs of
/// a kind, that many are drawn. Throws InvalidArgument if there is no pair of either kind.
FacePairs balanced_pairs(const std::vector<int64_t>& people, int64_t most = 100'000);

/// Opens --verify: files or folders as open_verification_set takes them, or folders of people. Throws Error
/// that names the option. No two have one name.
std::vector<FacePairs> open_all_pairs(const std::vector<std::string>& paths);

/// What is known of pairs before they are judged: of a set that only lists pairs, their distances, of which
/// each was computed as its images came; else the images' embeddings, of length one.
struct ComparedPairs {
  std::vector<double> distances;  // squared L2
  Embeddings embeddings;
  Norms norms;
};

/// Embeds and compares one of `ranks` parts of a set. None if stop_signal() is set before the end.
std::optional<ComparedPairs> compare(const FacePairs& faces, const sinter::nn::AnyModule& backbone,
                                     const Options& options, sinter::Device device, int rank = 0,
                                     int ranks = 1);
/// The parts of all ranks, on each: all call it, with what compare() gave them.
ComparedPairs gather(const FacePairs& faces, ComparedPairs part, const sinter::Communicator& ranks);

struct VerifiedSet {
  std::string name;
  int64_t pairs = 0;
  sinter::nn::VerificationResult folds;
  double mean_norm = 0.0;  // XNorm
  /// Where people are known: over all pairs of images that there are, of which `all_pairs`.
  std::optional<sinter::nn::BalancedResult> balanced;
  int64_t all_pairs = 0;
  /// Of the cosines; none where all pairs are of one kind.
  struct Curve {
    double area = 0.0;
    sinter::nn::TarAtFar at_1e3, at_1e2;  // one impostor in 1,000 and in 100 accepted
    std::vector<sinter::nn::RocPoint> points;
  };
  std::optional<Curve> curve;
};

/// What came of a whole set.
VerifiedSet judge(const FacePairs& faces, const ComparedPairs& compared);
/// compare() and judge().
std::optional<VerifiedSet> verify(const FacePairs& faces, const sinter::nn::AnyModule& backbone,
                                  const Options& options, sinter::Device device);

/// A line of text.
std::string to_string(const VerifiedSet& set);
/// The folds, a line each.
std::string table_of_folds(const VerifiedSet& set);
/// Throws Error that names --roc unless files can be made in the folder, which is made if it is missing.
void check_curves(const std::filesystem::path& folder);
/// Writes roc-<name>.csv into a folder: lines of threshold, false and true accept rate.
void write_curve(const std::filesystem::path& folder, const std::string& name,
                 const std::vector<sinter::nn::RocPoint>& points);
/// That of each set.
void write_curves(const std::filesystem::path& folder, const std::vector<VerifiedSet>& sets);
/// By name, what reports hold.
nlohmann::ordered_json to_json(const std::vector<VerifiedSet>& sets);

}  // namespace train_insightface
