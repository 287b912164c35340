#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <limits>
#include <type_traits>
#include <utility>

#include <sinter/core/base/log.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/checkpoint.h>
#include <sinter/nn/checkpoint/checkpoint_format.h>

namespace sinter::nn {
namespace {

constexpr std::string_view kFolderPrefix = "checkpoint-";
// A folder with one of these in front of its name is no checkpoint (yet, or any more).
constexpr std::string_view kSavingPrefix = ".saving-";
constexpr std::string_view kRemovingPrefix = ".removing-";
// More than any manifest or set of values needs, and little enough to read at once.
constexpr uint64_t kMaxTextBytes = 100'000'000;

std::string folder_name(uint64_t number) {
  return fmt::format("{}{:08}", kFolderPrefix, number);
}

/// The number in a name that folder_name makes, or nothing for any other name.
std::optional<uint64_t> number_of(std::string_view name) {
  if (!name.starts_with(kFolderPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kFolderPrefix.size());
  uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return folder_name(number) == name ? std::optional(number) : std::nullopt;
}

/// The number in the name of a checkpoint that is being saved or removed, or nothing.
std::optional<uint64_t> hidden_number_of(std::string_view name) {
  for (const std::string_view prefix : {kSavingPrefix, kRemovingPrefix}) {
    if (name.starts_with(prefix)) return number_of(name.substr(prefix.size()));
  }
  return std::nullopt;
}

std::vector<std::string> names_in(const std::filesystem::path& folder, FileSystem& files) {
  std::vector<std::string> names;
  check_file_call(files.list(folder, names), "list", folder);
  return names;
}

/// Removes a folder that holds nothing but files of these names; else throws IoError and removes nothing.
template <class F>
void remove_own(const std::filesystem::path& folder, F&& is_own, FileSystem& files) {
  const std::vector<std::string> names = names_in(folder, files);
  for (const std::string& name : names) {
    if (!is_own(name)) throw_error<IoError>("it holds {}, which no checkpoint has", quote_name(name));
  }
  for (const std::string& name : names) check_file_call(files.remove(folder / name), "remove", folder / name);
  check_file_call(files.remove(folder), "remove", folder);
}

std::string read_text(const std::filesystem::path& path, FileSystem& files) {
  InputFile file(path, files);
  if (file.size() > kMaxTextBytes) {
    throw_error<IoError>("[checkpoint] {}: expected at most {} bytes but the file has {}", path.string(),
                         kMaxTextBytes, file.size());
  }
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

/// Throws unless the file is what the manifest says.
void verify(const std::filesystem::path& path, const ManifestEntry& entry, FileSystem& files) {
  InputFile file(path, files);
  if (file.size() != entry.size) {
    throw_error<IoError>("[checkpoint] {}: byte {}: the manifest says {} bytes but the file has {}",
                         path.string(), std::min(file.size(), entry.size), entry.size, file.size());
  }
  std::vector<std::byte> buffer(std::min<uint64_t>(entry.size, uint64_t{1} << 20));
  uint32_t crc = 0;
  for (uint64_t place = 0; place < entry.size; place += buffer.size()) {
    const auto piece = std::span(buffer).first(std::min<uint64_t>(buffer.size(), entry.size - place));
    file.read(place, piece);
    crc = extend_crc32(crc, piece);
  }
  if (crc != entry.crc32) {
    throw_error<IoError>("[checkpoint] {}: the manifest says crc32 {:08x} but the file has {:08x}",
                         path.string(), entry.crc32, crc);
  }
}

ManifestEntry finish(OutputFile& file, std::string name) {
  file.sync_and_close();
  return {.name = std::move(name), .size = file.size(), .crc32 = file.crc32()};
}

/// Makes a folder and those above it; an existing one is fine. New entries are put on the disk.
void make_folders(const std::filesystem::path& folder, FileSystem& files) {
  int result = files.make_folder(folder);
  const std::filesystem::path parent = folder.parent_path();
  if (result == -ENOENT && !parent.empty() && parent != folder) {
    make_folders(parent, files);
    result = files.make_folder(folder);
  }
  if (result == -EEXIST) return;
  // Above a folder that is there, a drive may refuse before it looks for the name.
  std::vector<std::string> ignored;
  const bool is_refused = result == -EACCES || result == -EPERM || result == -EROFS;
  if (is_refused && files.list(folder, ignored) >= 0) return;
  check_file_call(result, "make the folder", folder);
  sync_folder(parent, files);
}

template <class T>
constexpr const char* kKind = std::is_same_v<T, bool>          ? "a boolean"
                              : std::is_same_v<T, double>      ? "a floating-point number"
                              : std::is_same_v<T, std::string> ? "a text"
                              : std::is_signed_v<T>            ? "an integer of 64 bits"
                                                               : "an integer of 64 bits >= 0";

}  // namespace

const NamedTensors& CheckpointData::part(const std::string& name) const {
  if (const auto found = tensors.find(name); found != tensors.end()) return found->second;
  std::string present;
  for (const auto& [other, held] : tensors) present += (present.empty() ? "" : ", ") + quote_name(other);
  throw_error<IoError>("[checkpoint] the part {} is missing; it has {}", quote_name(name),
                       present.empty() ? "none" : present);
}

template <class T>
T CheckpointData::value(const std::string& key) const {
  const auto found = values.find(key);
  if (found == values.end()) throw_error<IoError>("[checkpoint] the value {} is missing", quote_name(key));
  if (const T* held = std::get_if<T>(&found->second)) return *held;
  if constexpr (std::is_same_v<T, uint64_t>) {
    if (const auto* held = std::get_if<int64_t>(&found->second); held != nullptr && *held >= 0) {
      return static_cast<uint64_t>(*held);
    }
  }
  if constexpr (std::is_same_v<T, int64_t>) {
    if (const auto* held = std::get_if<uint64_t>(&found->second);
        held != nullptr && *held <= uint64_t{std::numeric_limits<int64_t>::max()}) {
      return static_cast<int64_t>(*held);
    }
  }
  throw_error<IoError>("[checkpoint] expected {} as the value {}", kKind<T>, quote_name(key));
}

template bool CheckpointData::value<bool>(const std::string&) const;
template int64_t CheckpointData::value<int64_t>(const std::string&) const;
template uint64_t CheckpointData::value<uint64_t>(const std::string&) const;
template double CheckpointData::value<double>(const std::string&) const;
template std::string CheckpointData::value<std::string>(const std::string&) const;

CheckpointData load_checkpoint(const std::filesystem::path& folder, FileSystem& files) {
  const std::filesystem::path manifest = folder / kManifestName;
  const std::vector<ManifestEntry> entries = parse_manifest(read_text(manifest, files), manifest.string());
  CheckpointData data;
  bool has_state = false;
  for (const ManifestEntry& entry : entries) {
    const std::filesystem::path path = folder / entry.name;
    verify(path, entry, files);
    if (entry.name == kStateName) {
      data.values = parse_values(read_text(path, files), path.string());
      has_state = true;
    } else {
      const std::string part = entry.name.substr(0, entry.name.size() - kPartSuffix.size());
      data.tensors[part] = read_safetensors(path, files).tensors;
    }
  }
  if (!has_state)
    throw_error<IoError>("[checkpoint] {}: the manifest does not name {}", manifest.string(), kStateName);
  return data;
}

CheckpointFolder::CheckpointFolder(std::filesystem::path root, int keep_last, FileSystem& files)
    : root_(std::move(root)), keep_last_(keep_last), files_(files) {
  SINTER_CHECK(keep_last >= 0, "[checkpoint] expected keep_last >= 0 but got {}", keep_last);
  SINTER_CHECK(!root_.empty(), "[checkpoint] expected a root folder but got an empty path");
}

std::filesystem::path CheckpointFolder::save(const CheckpointData& data) {
  for (const auto& [part, tensors] : data.tensors) {
    SINTER_CHECK(is_part_name(part),
                 "[checkpoint] a part's name has letters, digits, '_' and '-' only, not {}",
                 quote_name(part));
  }
  make_folders(root_, files_);
  remove_leftovers();
  const std::string name = folder_name(next_number());
  const std::filesystem::path temporary = root_ / (std::string(kSavingPrefix) + name);
  const std::filesystem::path folder = root_ / name;
  check_file_call(files_.make_folder(temporary), "make the folder", temporary);
  try {
    write_parts(data, temporary);
    sync_folder(temporary, files_);
    check_file_call(files_.rename(temporary, folder), "rename the finished checkpoint to its name",
                    temporary);
  } catch (...) {
    try {
      remove_folder(temporary, files_);
    } catch (const IoError&) {
      // The first failure is the one to tell; the next save removes what is left.
    }
    throw;
  }
  try {
    sync_folder(root_, files_);
    remove_old();
  } catch (const IoError& error) {
    log::warning("{}; {} is complete, and old checkpoints stay, as a loss of power may take it", error.what(),
                 folder.string());
  }
  return folder;
}

void CheckpointFolder::write_parts(const CheckpointData& data, const std::filesystem::path& folder) const {
  std::vector<ManifestEntry> entries;
  for (const auto& [part, tensors] : data.tensors) {
    const std::string name = part + std::string(kPartSuffix);
    OutputFile file(folder / name, files_);
    serialize_safetensors(tensors, {}, [&](std::span<const std::byte> bytes) { file.write(bytes); });
    entries.push_back(finish(file, name));
  }
  const std::string values = format_values(data.values);
  SINTER_CHECK(values.size() <= kMaxTextBytes, "[checkpoint] expected values of at most {} bytes but got {}",
               kMaxTextBytes, values.size());
  OutputFile state(folder / kStateName, files_);
  state.write(values);
  entries.push_back(finish(state, std::string(kStateName)));
  OutputFile manifest(folder / kManifestName, files_);
  manifest.write(format_manifest(entries));
  manifest.sync_and_close();
}

std::vector<std::filesystem::path> CheckpointFolder::list() const {
  std::vector<std::string> names;
  const int result = files_.list(root_, names);
  if (result == -ENOENT) return {};
  check_file_call(result, "list", root_);
  std::erase_if(names, [](const std::string& name) { return !number_of(name); });
  // By number, not by text: numbers may outgrow their leading zeros.
  std::stable_sort(names.begin(), names.end(),
                   [](const std::string& a, const std::string& b) { return *number_of(a) < *number_of(b); });
  std::vector<std::filesystem::path> checkpoints;
  for (const std::string& name : names) checkpoints.push_back(root_ / name);
  return checkpoints;
}

std::optional<std::filesystem::path> CheckpointFolder::latest() const {
  const std::vector<std::filesystem::path> checkpoints = list();
  if (checkpoints.empty()) return std::nullopt;
  return checkpoints.back();
}

std::optional<LoadedCheckpoint> CheckpointFolder::load_latest() const {
  std::vector<std::filesystem::path> checkpoints = list();
  if (checkpoints.empty()) return std::nullopt;
  LoadedCheckpoint loaded;
  std::exception_ptr first;
  for (; !checkpoints.empty(); checkpoints.pop_back()) {
    loaded.folder = checkpoints.back();
    try {
      loaded.data = load_checkpoint(loaded.folder, files_);
      return loaded;
    } catch (const IoError& error) {
      if (!first) first = std::current_exception();
      loaded.damaged.push_back(loaded.folder);
      if (checkpoints.size() > 1) log::warning("{}; trying the checkpoint before it", error.what());
    }
  }
  std::rethrow_exception(first);
}

void CheckpointFolder::check_writable() const {
  make_folders(root_, files_);
  OutputFile probe(root_ / (std::string(kSavingPrefix) + "probe"), files_);  // removed by its destructor
  const std::vector<std::byte> block(4096);  // a full disk still makes empty files
  probe.write(block);
}

uint64_t CheckpointFolder::next_number() const {
  uint64_t last = 0;
  for (const std::string& name : names_in(root_, files_)) {
    std::optional<uint64_t> number = number_of(name);
    if (!number) number = hidden_number_of(name);  // one that could not be removed
    last = std::max(last, number.value_or(0));
  }
  if (last == std::numeric_limits<uint64_t>::max()) {
    throw_error<IoError>("[checkpoint] {}: no number is left for another checkpoint", root_.string());
  }
  return last + 1;
}

void CheckpointFolder::keep(const std::filesystem::path& folder, const std::string& reason) {
  if (kept_.insert(folder).second)
    log::warning("[checkpoint] {} is not removed: {}", folder.string(), reason);
}

void CheckpointFolder::remove_leftovers() {
  for (const std::string& name : names_in(root_, files_)) {
    if (!hidden_number_of(name)) continue;
    try {
      remove_own(root_ / name, is_checkpoint_file, files_);
    } catch (const IoError& error) {
      keep(root_ / name, error.what());
    }
  }
}

void CheckpointFolder::remove_old() {
  const size_t newest = static_cast<size_t>(keep_last_);
  try {
    const std::vector<std::filesystem::path> checkpoints = list();
    if (newest == 0 || checkpoints.size() <= newest) return;
    for (size_t i = 0; i < checkpoints.size() - newest; ++i) remove_checkpoint(checkpoints[i]);
  } catch (const IoError& error) {
    keep(root_, error.what());
  }
}

void CheckpointFolder::remove_checkpoint(const std::filesystem::path& folder) {
  try {
    std::set<std::string> own = {std::string(kManifestName)};
    const std::string manifest = (folder / kManifestName).string();
    for (ManifestEntry& entry : parse_manifest(read_text(manifest, files_), manifest))
      own.insert(std::move(entry.name));
    for (const std::string& name : names_in(folder, files_)) {
      if (!own.contains(name)) throw_error<IoError>("it holds {}, which is not part of it", quote_name(name));
    }
    // Renamed first: a folder that is half removed must not look like a checkpoint.
    const std::filesystem::path hidden = root_ / (std::string(kRemovingPrefix) + folder.filename().string());
    check_file_call(files_.rename(folder, hidden), "rename the old checkpoint", folder);
    remove_own(hidden, is_checkpoint_file, files_);
  } catch (const IoError& error) {
    keep(folder, error.what());
  }
}

}  // namespace sinter::nn
