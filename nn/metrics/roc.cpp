#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/nn/metrics/roc.h>

namespace sinter::nn {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

/// From the highest, NaN as the lowest.
void sort_scores(std::vector<float>& scores) {
  for (float& score : scores) {
    if (std::isnan(score)) score = kLowest;
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
}

std::vector<float> scores_of(std::span<const float> scores, std::span<const uint8_t> same, bool genuine) {
  SINTER_CHECK(scores.size() == same.size(), "[roc] expected as many scores as truths but got {} and {}",
               scores.size(), same.size());
  std::vector<float> own;
  for (size_t i = 0; i < scores.size(); ++i) {
    if ((same[i] != 0) == genuine) own.push_back(scores[i]);
  }
  return own;
}

/// How many of the sorted scores are above a threshold.
int64_t count_above(const std::vector<float>& sorted, float threshold) {
  return std::lower_bound(sorted.begin(), sorted.end(), threshold, std::greater<>()) - sorted.begin();
}

double share(int64_t part, const std::vector<float>& all) {
  return static_cast<double>(part) / static_cast<double>(all.size());
}

}  // namespace

/// Goes from the highest score that occurs to the lowest.
struct Roc::Walk {
  const Roc& roc;
  size_t genuine = 0, impostors = 0;  // at `score` or above
  float score = 0.0f;

  bool next() {
    const auto& own = roc.genuine_;
    const auto& others = roc.impostors_;
    if (genuine == own.size() && impostors == others.size()) return false;
    score = std::max(genuine < own.size() ? own[genuine] : kLowest,
                     impostors < others.size() ? others[impostors] : kLowest);
    while (genuine < own.size() && own[genuine] == score) ++genuine;
    while (impostors < others.size() && others[impostors] == score) ++impostors;
    return true;
  }
  /// The score that comes next: what is above it has been passed.
  float following() const {
    return std::max(genuine < roc.genuine_.size() ? roc.genuine_[genuine] : kLowest,
                    impostors < roc.impostors_.size() ? roc.impostors_[impostors] : kLowest);
  }
  RocPoint point() const {
    return {static_cast<double>(following()), share(static_cast<int64_t>(impostors), roc.impostors_),
            share(static_cast<int64_t>(genuine), roc.genuine_)};
  }
};

Roc::Roc(std::vector<float> genuine, std::vector<float> impostors)
    : genuine_(std::move(genuine)), impostors_(std::move(impostors)) {
  SINTER_CHECK(!genuine_.empty() && !impostors_.empty(),
               "[roc] expected pairs of the same person and of different ones but got {} and {}",
               genuine_.size(), impostors_.size());
  sort_scores(genuine_);
  sort_scores(impostors_);
}

Roc::Roc(std::span<const float> scores, std::span<const uint8_t> same)
    : Roc(scores_of(scores, same, true), scores_of(scores, same, false)) {}

TarAtFar Roc::tar_at_far(int64_t one_in) const {
  SINTER_CHECK(one_in >= 1, "[roc] expected a false accept rate of one in 1 or more but got one in {}",
               one_in);
  TarAtFar result{.allowed = impostors() / one_in};
  if (result.allowed == impostors()) return {result.allowed, static_cast<double>(kLowest), 1.0};
  const float threshold = impostors_[static_cast<size_t>(result.allowed)];
  result.threshold = static_cast<double>(threshold);
  result.tar = share(count_above(genuine_, threshold), genuine_);
  return result;
}

RocPoint Roc::nearest_to_far(int64_t one_in) const {
  SINTER_CHECK(one_in >= 1, "[roc] expected a false accept rate of one in 1 or more but got one in {}",
               one_in);
  const double wanted = 1.0 / static_cast<double>(one_in);
  Walk walk{*this};
  RocPoint best{static_cast<double>(walk.following()), 0.0, 0.0};
  const auto consider = [&](const RocPoint& point) {
    if (std::abs(point.far - wanted) <= std::abs(best.far - wanted)) best = point;  // later ones are higher
  };
  // roc_curve drops a point between two equal steps, but never the first or the last.
  RocPoint previous;
  std::pair<size_t, size_t> at, step_before;
  for (int64_t index = 0; walk.next(); ++index) {
    const std::pair<size_t, size_t> step = {walk.genuine - at.first, walk.impostors - at.second};
    if (index == 1 || (index > 1 && step != step_before)) consider(previous);
    step_before = step;
    at = {walk.genuine, walk.impostors};
    previous = walk.point();
  }
  consider(previous);
  return best;
}

double Roc::area() const {
  double wins = 0.0;  // counts and halves, which add up without rounding up to 2^52
  size_t below_or_equal = 0, equal_from = 0;
  const size_t n = impostors_.size();
  for (const float score : genuine_) {  // from the highest
    while (equal_from < n && impostors_[equal_from] > score) ++equal_from;
    below_or_equal = std::max(below_or_equal, equal_from);
    while (below_or_equal < n && impostors_[below_or_equal] == score) ++below_or_equal;
    wins += static_cast<double>(n - below_or_equal) + static_cast<double>(below_or_equal - equal_from) / 2.0;
  }
  return wins / static_cast<double>(genuine_.size()) / static_cast<double>(n);
}

std::vector<RocPoint> Roc::curve() const {
  Walk walk{*this};
  std::vector<RocPoint> points = {{static_cast<double>(walk.following()), 0.0, 0.0}};
  std::pair<size_t, size_t> before, last;  // the places of the last two points
  while (walk.next()) {
    const std::pair<size_t, size_t> at = {walk.genuine, walk.impostors};
    const auto turn = [](size_t dx, size_t dy, size_t dx2, size_t dy2) {
      return static_cast<long double>(dx) * static_cast<long double>(dy2) !=
             static_cast<long double>(dy) * static_cast<long double>(dx2);
    };
    if (points.size() > 1 && !turn(last.first - before.first, last.second - before.second,
                                   at.first - last.first, at.second - last.second)) {
      points.back() = walk.point();
    } else {
      points.push_back(walk.point());
      before = last;
    }
    last = at;
  }
  return points;
}

}  // namespace sinter::nn
