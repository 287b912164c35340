#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/metrics/identification.h>

namespace sinter::nn {
namespace {

constexpr float kNoScore = -std::numeric_limits<float>::infinity();

/// What a search for one probe gave.
struct Search {
  float best = kNoScore;  // of all the gallery
  int64_t rank = 0;       // of the mate; 0: there is none
};

/// A score, a NaN as the lowest.
float score_of(const Templates& templates, const Enrolled& a, const Enrolled& b) {
  const float score = templates.compare(a.row, b.row);
  return std::isnan(score) ? kNoScore : score;
}

Search search(const Templates& templates, std::span<const Enrolled> gallery, const Enrolled& probe,
              std::vector<float>& scores) {
  Search result;
  float mate = kNoScore;
  bool mated = false;
  for (size_t i = 0; i < gallery.size(); ++i) {
    scores[i] = score_of(templates, gallery[i], probe);
    result.best = std::max(result.best, scores[i]);
    if (gallery[i].subject != probe.subject) continue;
    mated = true;
    mate = std::max(mate, scores[i]);
  }
  if (!mated) return result;
  result.rank = 1;
  for (size_t i = 0; i < gallery.size(); ++i)
    result.rank += gallery[i].subject != probe.subject && scores[i] >= mate ? 1 : 0;
  return result;
}

void check(const Templates& templates, std::span<const Enrolled> gallery, std::span<const Enrolled> probes,
           std::span<const int64_t> ranks, std::span<const int64_t> one_in) {
  SINTER_CHECK(!gallery.empty(), "[identify] expected a gallery but got none");
  for (const auto& all : {gallery, probes}) {
    for (const Enrolled& one : all)
      SINTER_CHECK(one.row < templates.size(), "[identify] expected a row of {} templates but got {}",
                   templates.size(), one.row);
  }
  for (const int64_t rank : ranks)
    SINTER_CHECK(rank >= 1, "[identify] expected a rank from 1 but got {}", rank);
  for (const int64_t one : one_in)
    SINTER_CHECK(one >= 1, "[identify] expected a rate of one in 1 or more but got one in {}", one);
}

FnirAtFpir at_rate(const std::vector<Search>& searches, const std::vector<float>& strangers, int64_t one_in,
                   int64_t mated) {
  const auto count = static_cast<int64_t>(strangers.size());
  FnirAtFpir result{.one_in = one_in, .allowed = count / one_in};
  const float threshold = result.allowed < count ? strangers[static_cast<size_t>(result.allowed)] : kNoScore;
  const auto missed = std::ranges::count_if(
      searches, [&](const Search& s) { return s.rank > 1 || (s.rank == 1 && !(s.best > threshold)); });
  result.threshold = static_cast<double>(threshold);
  result.fnir = static_cast<double>(missed) / static_cast<double>(mated);
  return result;
}

}  // namespace

IdentificationResult identify(const Templates& templates, std::span<const Enrolled> gallery,
                              std::span<const Enrolled> probes, std::span<const int64_t> ranks,
                              std::span<const int64_t> one_in) {
  check(templates, gallery, probes, ranks, one_in);
  std::vector<Search> searches(probes.size());
  parallel_for(static_cast<int64_t>(probes.size()), 8, [&](int64_t begin, int64_t end) {
    std::vector<float> scores(gallery.size());
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      searches[i] = search(templates, gallery, probes[i], scores);
  });
  IdentificationResult result;
  std::vector<float> strangers;  // best scores of non-mated probes
  for (const Search& one : searches) {
    if (one.rank == 0) strangers.push_back(one.best);
  }
  result.non_mated = static_cast<int64_t>(strangers.size());
  result.mated = static_cast<int64_t>(searches.size()) - result.non_mated;
  SINTER_CHECK(result.mated > 0,
               "[identify] expected a probe whose subject is in the gallery but got {} others",
               result.non_mated);
  for (const int64_t rank : ranks) {
    const auto found =
        std::ranges::count_if(searches, [&](const Search& s) { return s.rank >= 1 && s.rank <= rank; });
    result.found.push_back(static_cast<double>(found) / static_cast<double>(result.mated));
  }
  std::sort(strangers.begin(), strangers.end(), std::greater<>());
  if (!strangers.empty()) {
    for (const int64_t one : one_in)
      result.open_set.push_back(at_rate(searches, strangers, one, result.mated));
  }
  return result;
}

}  // namespace sinter::nn
