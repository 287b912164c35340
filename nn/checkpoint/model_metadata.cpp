#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/json/json.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/model_metadata.h>

namespace sinter::nn {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
constexpr const char* kVersionKey = "model_metadata_version";
constexpr const char *kInterpolationKey = "interpolation", *kBilinear = "bilinear";
constexpr size_t kMostNames = 3;  // in a message

/// Calls `member(key, value)` for every member but the version: what is written and read is this list.
template <class Metadata, class Member>
void visit(Metadata& m, const Member& member) {
  member("task", m.task);
  member("model", m.model);
  member("model_options", m.options);
  member("classes", m.classes);
  member("height", m.height);
  member("width", m.width);
  member("channels", m.channels);
  member("resize", m.resize);
  member("resize_size", m.resize_size);
  member("mean", m.mean);
  member("std", m.std);
  member("train_images", m.train_images);
  member("data_fingerprint", m.data_fingerprint);
}

ordered_json to_object(const ModelMetadata& metadata) {
  ordered_json object = {{kVersionKey, kVersion}};
  visit(metadata, [&](const char* key, const auto& value) { object[key] = value; });
  // Files that say nothing of it are those of earlier versions, and mean this.
  if (metadata.interpolation != kBilinear) object[kInterpolationKey] = metadata.interpolation;
  return object;
}

std::string dump(const ordered_json& json) {
  try {
    return json.dump();
  } catch (const ordered_json::exception&) {
    throw_error<InvalidArgument>("[model_metadata] expected texts in UTF-8; to_utf8() makes them that");
  }
}

/// Null for what is no JSON, or nested too deeply.
ordered_json parse(std::string_view text) {
  try {
    return parse_json(text);
  } catch (const IoError&) {
    return {};
  }
}

ModelMetadata from_object(const ordered_json& object, const std::string& path) {
  const auto fail = [&path](const char* key) {
    throw_error<IoError>("[model_metadata] {}: \"{}\" is missing or damaged", path, key);
  };
  const auto version = object.find(kVersionKey);
  if (version == object.end() || !version->is_number_integer()) fail(kVersionKey);
  if (*version != kVersion) {
    throw_error<IoError>("[model_metadata] {}: expected metadata of version {} but got {}", path, kVersion,
                         version->dump());
  }
  ModelMetadata metadata;
  visit(metadata, [&](const char* key, auto& value) {
    const auto found = object.find(key);
    if (found == object.end()) fail(key);
    try {
      found->get_to(value);
    } catch (const ordered_json::exception&) {
      fail(key);
    }
  });
  if (const auto found = object.find(kInterpolationKey); found != object.end()) {
    if (!found->is_string()) fail(kInterpolationKey);
    metadata.interpolation = *found;
  }
  const auto is_finite = [](float value) { return std::isfinite(value); };
  if (!std::ranges::all_of(metadata.mean, is_finite)) fail("mean");
  if (!std::ranges::all_of(metadata.std, is_finite)) fail("std");
  return metadata;
}

/// A name for a message.
std::string quoted(const std::string& name) {
  constexpr size_t kMostBytes = 60;
  std::string text = to_utf8(name);
  if (text.size() > kMostBytes) {
    text = text.substr(0, kMostBytes);
    text = text.substr(0, valid_utf8_prefix(text)) + "...";
  }
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return "'" + text + "'";
}

/// The first parts, and how many there are more.
std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (size_t i = 0; i < std::min(parts.size(), kMostNames); ++i) text += (i == 0 ? "" : ", ") + parts[i];
  if (parts.size() > kMostNames) text += fmt::format(" and {} more", parts.size() - kMostNames);
  return text;
}

/// Those of `names` that `others` lacks, for a message.
std::vector<std::string> lacking(const std::vector<std::string>& names,
                                 const std::vector<std::string>& others) {
  const std::set<std::string> known(others.begin(), others.end());
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (!known.contains(name)) found.push_back(quoted(name));
  }
  return found;
}

/// Whether both sides have names: numbers, which data sets without names have, say nothing of others'.
bool are_comparable(const std::vector<std::string>& before, const std::vector<std::string>& now) {
  if (!are_numbers(before) && !are_numbers(now)) return true;
  return lacking(before, now).size() < before.size();
}

}  // namespace

std::string to_json(const ModelMetadata& metadata) {
  return dump(to_object(metadata));
}

ModelMetadata parse_model_metadata(std::string_view json, const std::string& path) {
  return from_object(parse(json), path);
}

std::map<std::string, std::string> to_safetensors_metadata(const ModelMetadata& metadata) {
  std::map<std::string, std::string> texts;
  const ordered_json object = to_object(metadata);
  for (const auto& [key, value] : object.items())
    texts[key] = value.is_string() ? value.template get<std::string>() : dump(value);
  return texts;
}

std::optional<ModelMetadata> find_model_metadata(const std::map<std::string, std::string>& metadata,
                                                 const std::string& path) {
  if (!metadata.contains(kVersionKey)) return std::nullopt;
  ordered_json object = ordered_json::object();
  ModelMetadata whole;  // with the key that is not always there
  whole.interpolation = "bicubic";
  const ordered_json kinds = to_object(whole);
  for (const auto& [key, text] : metadata) {
    const auto kind = kinds.find(key);
    if (kind != kinds.end()) object[key] = kind->is_string() ? ordered_json(text) : parse(text);
  }
  return from_object(object, path);
}

std::string describe_class_changes(const std::vector<std::string>& before,
                                   const std::vector<std::string>& now) {
  std::vector<std::string> gone, come, changes;
  if (are_comparable(before, now)) {
    gone = lacking(before, now);
    come = lacking(now, before);
    for (size_t i = 0; i < std::min(before.size(), now.size()); ++i) {
      if (before[i] != now[i])
        changes.push_back(fmt::format("class {} was {}, is {} now", i, quoted(before[i]), quoted(now[i])));
    }
  }
  std::string text = join(changes);
  if (before.size() != now.size())
    text = fmt::format("there were {} classes, there are {} now", before.size(), now.size());
  if (before.size() == now.size() && gone.size() == changes.size()) return text;  // which names all
  if (!gone.empty()) text += "; gone: " + join(gone);
  if (!come.empty()) text += "; new: " + join(come);
  return text;
}

bool are_numbers(const std::vector<std::string>& classes) {
  for (size_t i = 0; i < classes.size(); ++i) {
    if (classes[i] != std::to_string(i)) return false;
  }
  return true;
}

std::string to_utf8(std::string_view text) {
  std::string valid;
  while (true) {
    const size_t count = valid_utf8_prefix(text);
    valid += text.substr(0, count);
    if (count == text.size()) return valid;
    valid += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[count]));
    text.remove_prefix(count + 1);
  }
}

}  // namespace sinter::nn
