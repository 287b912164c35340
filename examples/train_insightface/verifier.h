// How well embeddings tell whether two faces are one person's: the pairs of --verify, and what they give.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <sinter/nn/data/dataset.h>
#include <sinter/nn/metrics/verification.h>
#include <sinter/nn/models/iresnet.h>

#include "options.h"

namespace train_insightface {

/// Images, and pairs of them.
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

/// Opens --verify: files or folders as load_verification_set takes them, or folders of people. Throws Error
/// that names the option. No two have one name.
std::vector<FacePairs> open_all_pairs(const std::vector<std::string>& paths);

struct VerifiedSet {
  std::string name;
  int64_t pairs = 0;
  sinter::nn::VerificationResult folds;
  double mean_norm = 0.0;  // XNorm
  /// Where people are known: over all pairs of images that there are, of which `all_pairs`.
  std::optional<sinter::nn::BalancedResult> balanced;
  int64_t all_pairs = 0;
};

/// None if stop_signal() is set before the end.
std::optional<VerifiedSet> verify(const FacePairs& faces, const sinter::nn::IResNet& backbone,
                                  const Options& options, sinter::Device device);

/// A line of text.
std::string to_string(const VerifiedSet& set);
/// By name, what reports hold.
nlohmann::ordered_json to_json(const std::vector<VerifiedSet>& sets);

}  // namespace train_insightface
