#include "run/same_start.h"

#include <algorithm>
#include <string_view>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace sinter::examples {
namespace {

using nlohmann::ordered_json;

/// The texts of all ranks.
std::vector<std::string> gather(const Communicator& ranks, std::string text) {
  const auto own = static_cast<int64_t>(text.size());
  const std::vector<int64_t> sizes =
      ranks.all_gather(Tensor::from_values<int64_t>({own}, {1})).to_vector<int64_t>();
  const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  text.resize(static_cast<size_t>(longest));
  const std::vector<uint8_t> bytes(text.begin(), text.end());
  const std::vector<uint8_t> all =
      ranks.all_gather(Tensor::from_values(bytes, {1, longest})).to_vector<uint8_t>();
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank) * longest;
    texts.emplace_back(begin, begin + sizes[rank]);
  }
  return texts;
}

/// "1437 on rank 0 (host, process 12), from /data/digits"
std::string describe(const Communicator& ranks, int rank, const ordered_json& facts,
                     const std::string& what) {
  const ordered_json fact = facts.value(what, ordered_json{"none", ""});
  const auto source = fact[1].get<std::string>();
  return fmt::format("{} on {}{}", fact[0].get<std::string>(), ranks.describe(rank),
                     source.empty() ? "" : ", from " + source);
}

}  // namespace

void check_same_start(const Communicator& ranks, const std::vector<Fact>& facts) {
  if (ranks.size() == 1) return;
  ordered_json own = ordered_json::object();
  for (const Fact& fact : facts) own[fact.what] = {fact.value, fact.source};
  const std::vector<std::string> texts =
      gather(ranks, own.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  const ordered_json first = ordered_json::parse(texts[0]);
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const ordered_json other = ordered_json::parse(texts[static_cast<size_t>(rank)]);
    ordered_json all = first;
    all.update(other);
    for (const auto& [what, fact] : all.items()) {
      if (first.contains(what) && other.contains(what) && first[what][0] == other[what][0]) continue;
      throw CommunicationError(fmt::format("the ranks differ in {}: {}; {}", what,
                                           describe(ranks, 0, first, what),
                                           describe(ranks, rank, other, what)));
    }
  }
}

void share(nn::data::Normalization& normalization, const Communicator& ranks) {
  if (ranks.size() == 1) return;
  for (std::vector<float>* values : {&normalization.mean, &normalization.std}) {
    const Tensor shared = Tensor::from_values(*values, {static_cast<int64_t>(values->size())});
    ranks.broadcast_(shared);
    *values = shared.to_vector<float>();
  }
}

}  // namespace sinter::examples
