#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/pytorch/name_prefixes.h>
#include <sinter/nn/checkpoint/pytorch/state_choice.h>

namespace sinter::nn::pytorch {
namespace {

using Entries = PickleMachine::Entries;

constexpr std::string_view kNames[] = {"state_dict",          "model", "model_state_dict", "backbone",
                                       "state_dict_backbone", "net",   "module",           "params"};

bool is_usual(std::string_view name) {
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) || name.ends_with("_ema");
}

bool has_tensors(const Entries& dict) {
  return std::any_of(dict.begin(), dict.end(), [](const auto& entry) {
    return entry.first.is_string() && PytorchPickle::is_tensor(entry.second);
  });
}

/// The value under a name: the last, as later ones replace earlier ones.
const PickleValue* find(const Entries& dict, std::string_view name) {
  const auto found = std::find_if(dict.rbegin(), dict.rend(), [&](const auto& entry) {
    return entry.first.is_string() && entry.first.text() == name;
  });
  return found == dict.rend() ? nullptr : &found->second;
}

/// The dicts with tensors, as a list for messages. Dicts may hold themselves: each is entered once.
std::string list_places(const PytorchPickle& pickle, const Entries& top) {
  constexpr size_t kMostDepth = 32, kMostPlaces = 8;
  struct Level {
    const Entries* dict;
    size_t next;
    size_t path_bytes;
  };
  std::string path, list;
  size_t count = 0;
  std::set<const Entries*> visited = {&top};
  std::vector<Level> levels = {{.dict = &top, .next = 0, .path_bytes = 0}};
  while (!levels.empty()) {
    Level& level = levels.back();
    path.resize(level.path_bytes);
    if (level.next == level.dict->size()) {
      levels.pop_back();
      continue;
    }
    const auto& [name, value] = (*level.dict)[level.next++];
    const Entries* dict = pickle.entries(value);
    if (dict == nullptr || !name.is_string() || levels.size() == kMostDepth || !visited.insert(dict).second)
      continue;
    path += (path.empty() ? "" : ".") + std::string(name.text().substr(0, 60));
    if (has_tensors(*dict) && ++count <= kMostPlaces) list += (count == 1 ? "" : ", ") + quote_name(path);
    levels.push_back({.dict = dict, .next = 0, .path_bytes = path.size()});
  }
  if (count > kMostPlaces) list += fmt::format(" and {} more", count - kMostPlaces);
  return list;
}

/// The dict at a key. Names may have dots themselves: at each step the shortest that is there counts.
const Entries& find_dict(const PytorchPickle& pickle, const Entries& top, const std::string& key,
                         const ByteSource& source) {
  const Entries* dict = &top;
  std::string_view rest = key;
  while (!rest.empty()) {
    const PickleValue* value = nullptr;
    size_t end = 0;
    do {
      end = std::min(rest.find('.', end + 1), rest.size());
      value = find(*dict, rest.substr(0, end));
    } while (value == nullptr && end < rest.size());
    if (value == nullptr) {
      const std::string places = list_places(pickle, top);
      source.fail<InvalidArgument>(
          "there is nothing at the key {}; {}", quote_name(key),
          places.empty() ? "no entry is a dict with tensors" : "dicts with tensors are at " + places);
    }
    dict = pickle.entries(*value);
    if (dict == nullptr) {
      source.fail<InvalidArgument>("expected a dict at the key {} but got {}", quote_name(key),
                                   pickle.describe(*value));
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return *dict;
}

/// The name under which checkpoints hold weights; none for the top itself.
std::optional<std::string> choose_name(const PytorchPickle& pickle, const Entries& top,
                                       const ByteSource& source) {
  std::set<std::string_view> names;
  std::map<const Entries*, bool> known;  // many names may have one large dict
  for (const auto& [name, value] : top) {
    const Entries* dict = name.is_string() ? pickle.entries(value) : nullptr;
    if (dict == nullptr || !is_usual(name.text())) continue;
    const auto [place, is_new] = known.emplace(dict, false);
    if (is_new) place->second = has_tensors(*dict);
    if (place->second) names.insert(name.text());
  }
  if (names.size() == 1) return std::string(*names.begin());
  if (names.size() > 1) {
    source.fail<InvalidArgument>(
        "expected one dict of weights but there are {}; choose one by its key, as sinter_convert --key does",
        list_places(pickle, top));
  }
  if (top.empty() || has_tensors(top)) return std::nullopt;
  const std::string places = list_places(pickle, top);
  if (places.empty()) source.fail<InvalidArgument>("expected a dict of tensors but there are no tensors");
  source.fail<InvalidArgument>(
      "expected tensors at the top, or in an entry that checkpoints use, but they are in {}; choose by a "
      "key, as sinter_convert --key does",
      places);
}

}  // namespace

ChosenState choose_state(const PytorchPickle& pickle, const PickleValue& top, const std::string& key,
                         const ByteSource& source) {
  const Entries* outer = pickle.entries(top);
  if (outer == nullptr && top.kind == PickleValue::Kind::kOpaque) {
    source.fail<Unsupported>("it holds a whole module, {}, and not its weights: save its state_dict()",
                             pickle.opaque_name(top));
  }
  if (outer == nullptr)
    source.fail<InvalidArgument>("expected a dict of named tensors but got {}", pickle.describe(top));
  ChosenState state;
  state.key = key.empty() ? choose_name(pickle, *outer, source).value_or("") : key;
  const Entries& dict = find_dict(pickle, *outer, state.key, source);
  std::map<std::string_view, PickleValue> last;
  size_t nameless = 0;
  for (const auto& [name, value] : dict) {
    if (name.is_string()) {
      last[name.text()] = value;
    } else if (PytorchPickle::is_tensor(value)) {
      ++nameless;
    }
  }
  for (const auto& [name, value] : last) {
    if (PytorchPickle::is_tensor(value)) {
      state.tensors.emplace(name, value);
    } else {
      state.skipped.emplace_back(name);
    }
  }
  if (nameless > 0) {
    state.skipped.push_back(
        fmt::format("({} tensor{} under keys that are no strings)", nameless, nameless == 1 ? "" : "s"));
  }
  if (!key.empty() && state.tensors.empty())
    source.fail<InvalidArgument>("expected a dict with tensors at the key {}", quote_name(key));
  state.prefix = strip_prefixes(state.tensors);
  return state;
}

}  // namespace sinter::nn::pytorch
