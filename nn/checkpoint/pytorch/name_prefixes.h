// What frameworks put before the names of all weights.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace sinter::nn::pytorch {

/// Takes "module." (DataParallel) and "_orig_mod." (torch.compile) off while all names begin with one of
/// them, each twice at most, and gives what was taken off.
template <class Value>
std::string strip_prefixes(std::map<std::string, Value>& values) {
  std::string stripped;
  if (values.empty()) return stripped;
  for (int round = 0; round < 2; ++round) {
    for (const std::string_view prefix : {"module.", "_orig_mod."}) {
      const auto has_it = [&](const auto& entry) {
        return entry.first.starts_with(prefix) && entry.first.size() > prefix.size();
      };
      if (!std::all_of(values.begin(), values.end(), has_it)) continue;
      std::map<std::string, Value> shorter;
      for (auto& [name, value] : values) shorter.emplace(name.substr(prefix.size()), std::move(value));
      values = std::move(shorter);
      stripped += prefix;
    }
  }
  return stripped;
}

}  // namespace sinter::nn::pytorch
