#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/formats/file_bytes.h>
#include <sinter/nn/data/formats/folder_cache.h>
#include <sinter/nn/data/formats/image_folder.h>
#include <sinter/nn/data/image/files/image_file.h>

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxImageBytes = uint64_t{256} << 20;

// The sorted names in a folder of what `keep` accepts, without those that start with a dot.
template <class Keep>
std::vector<std::string> list_names(const fs::path& folder, Keep keep) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.front() != '.' && keep(*entry, name)) names.push_back(std::move(name));
  }
  if (error) throw_error<IoError>("[image_folder] {}: cannot list: {}", folder.string(), error.message());
  std::sort(names.begin(), names.end());
  return names;
}

/// Adds files that are left out. Few of them are images, and then `where` says why.
using LeftOut = std::map<std::string, uint64_t>;
void add_left_out(const std::string& ending, const char* where, uint64_t count, LeftOut& left_out) {
  left_out[(ending.empty() ? "without an ending" : '.' + ending) + where] += count;
}

std::vector<std::string> list_class_folders(const fs::path& root, LeftOut& left_out) {
  std::error_code error;
  if (!fs::is_directory(root, error)) {
    throw_error<IoError>("[image_folder] {}: expected a folder of class folders but {}", root.string(),
                         fs::exists(root, error) ? "it is a file" : "it does not exist");
  }
  std::vector<std::string> folders =
      list_names(root, [&](const fs::directory_entry& entry, const std::string& name) {
        std::error_code reason;
        if (entry.is_directory(reason)) return true;
        // What is there and cannot be looked at may be a class: without it the others' labels would differ.
        if (!reason && !entry.exists(reason))
          reason = std::make_error_code(std::errc::no_such_file_or_directory);
        if (reason) {
          throw_error<IoError>("[image_folder] {}: cannot tell whether it is a folder of a class: {}",
                               entry.path().string(), reason.message());
        }
        add_left_out(ending_of(name), " beside the folders of classes", 1, left_out);
        return false;
      });
  if (folders.empty()) {
    throw_error<IoError>("[image_folder] {}: expected one folder per class but it has no sub-folder",
                         root.string());
  }
  return folders;
}

// Folders of fewer images are listed in no time, and keep nothing on the disk.
constexpr size_t kLeastCached = 10'000;

// Adds what a folder holds, which lies at `below` under its class folder, or is that if `below` is empty.
// `above` are the folders that lead there: a link back to one of them brings nothing new.
void list_below(const fs::path& folder, const std::string& below, std::vector<FolderStamp>& above,
                ListedClass& listed) {
  const FolderStamp stamp = FolderStamp::of(folder).value_or(FolderStamp{});
  const auto is_same = [&](const FolderStamp& other) {
    return other.values[0] == stamp.values[0] && other.values[1] == stamp.values[1];  // device and inode
  };
  if (std::ranges::any_of(above, is_same)) return;
  (below.empty() ? listed.stamp : listed.folders[below]) = stamp;
  above.push_back(stamp);
  const std::string prefix = below.empty() ? "" : below + '/';
  std::vector<std::string> inside;
  list_names(folder, [&](const fs::directory_entry& entry, const std::string& name) {
    std::error_code unknown;
    const std::string ending = ending_of(name);
    if (entry.is_directory(unknown)) {
      inside.push_back(name);
    } else if (is_image_ending(ending)) {
      listed.images.push_back(prefix + name);
    } else {
      ++listed.left_out[ending];
    }
    return false;
  });
  for (const std::string& name : inside) list_below(folder / name, prefix + name, above, listed);
  above.pop_back();
}

ListedClass list_class(const fs::path& folder) {
  ListedClass listed;
  std::vector<FolderStamp> above;
  list_below(folder, "", above, listed);
  std::sort(listed.images.begin(), listed.images.end());
  return listed;
}

// Whether nothing was made, renamed or removed in a class folder, or in the folders in it, since it was
// listed.
bool is_unchanged(const fs::path& folder, const ListedClass& listed) {
  return FolderStamp::of(folder) == listed.stamp &&
         std::ranges::all_of(listed.folders, [&](const auto& inside) {
           return FolderStamp::of(folder / inside.first) == inside.second;
         });
}

bool is_settled(const ListedClass& listed, int64_t now) {
  return listed.stamp.is_settled(now) && std::ranges::all_of(listed.folders, [&](const auto& inside) {
           return inside.second.is_settled(now);
         });
}

int64_t nanoseconds_now() {
  using std::chrono::duration_cast, std::chrono::nanoseconds, std::chrono::system_clock;
  return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

// What the class folders hold, by their names: from `known` where a folder's stamp is still the same. Gives
// whether that was so everywhere.
bool list_classes(const fs::path& root, const std::vector<std::string>& folders, ListedClasses known,
                  ListedClasses& listed) {
  std::vector<ListedClass*> places;
  for (const std::string& folder : folders) places.push_back(&listed[folder]);
  std::atomic<bool> all_known = known.size() == folders.size();
  parallel_for(static_cast<int64_t>(folders.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const auto found = known.find(folders[i]);
      if (found != known.end() && is_unchanged(root / folders[i], found->second)) {
        *places[i] = std::move(found->second);
      } else {
        *places[i] = list_class(root / folders[i]);
        all_known = false;
      }
    }
  });
  return all_known;
}

void store_settled(const FolderCache& cache, const ListedClasses& listed, int64_t now) {
  size_t images = 0;
  for (const auto& [name, folder] : listed) images += folder.images.size();
  if (images < kLeastCached) return;
  ListedClasses settled;
  for (const auto& [name, folder] : listed) {
    if (is_settled(folder, now)) settled.emplace(name, folder);
  }
  if (!settled.empty()) cache.store(settled);
}

void add_images(ListedClass listed, size_t label, ImageFolderFiles& all) {
  for (const auto& [ending, count] : listed.left_out) add_left_out(ending, "", count, all.left_out);
  for (std::string& image : listed.images) all.files.push_back({label, std::move(image)});
}

void add_class(const fs::path& root, const std::string& name,
               const std::unordered_map<std::string_view, size_t>& labels, ListedClass listed,
               ImageFolderFiles& all) {
  const auto found = labels.find(name);
  if (found == labels.end()) {
    throw_error<IoError>("[image_folder] {}: expected only folders of the {} known classes but got \"{}\"",
                         root.string(), all.class_names.size(), name);
  }
  if (listed.images.empty()) {
    ImageFolderFiles only;
    add_images(std::move(listed), 0, only);
    const std::string others = only.describe_left_out();
    throw_error<IoError>("[image_folder] {}: expected images ({}) but there are none{}{}",
                         (root / name).string(), kImageEndings, others.empty() ? "" : "; ", others);
  }
  add_images(std::move(listed), found->second, all);
}

// Says which classes, of those that another folder has, are not here.
void tell_missing_classes(const fs::path& root, const std::vector<std::string>& folders,
                          const std::vector<std::string>& class_names) {
  constexpr size_t kMostNamed = 5;
  const std::set<std::string_view> present(folders.begin(), folders.end());
  std::vector<std::string_view> missing;
  for (const std::string& name : class_names) {
    if (!present.contains(name)) missing.push_back(name);
  }
  if (missing.empty()) return;
  const size_t named = std::min(missing.size(), kMostNamed);
  log::warning("[image_folder] {}: {} of {} classes have no folder: {}{}", root.string(), missing.size(),
               class_names.size(),
               fmt::join(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(named), ", "),
               missing.size() > named ? ", ..." : "");
}

class ImageFolder final : public Dataset {
 public:
  ImageFolder(const fs::path& root, const ImageFolderOptions& options)
      : root_(root), decode_(options.decode) {
    SINTER_CHECK(decode_.channels == 1 || decode_.channels == 3,
                 "[image_folder] expected 1 or 3 channels but got {}", decode_.channels);
    all_ = list_image_folder(root, options.class_names);
    if (const std::string others = all_.describe_left_out(); !others.empty())
      log::warning("[image_folder] {}: {}", root.string(), others);
  }

  int64_t size() const override { return static_cast<int64_t>(all_.files.size()); }
  const std::vector<std::string>& class_names() const override { return all_.class_names; }
  std::vector<int64_t> labels() const override {
    std::vector<int64_t> labels;
    labels.reserve(all_.files.size());
    for (const ImageFolderFiles::File& file : all_.files) labels.push_back(static_cast<int64_t>(file.label));
    return labels;
  }

  uint64_t fingerprint() const override {
    Fingerprint print;
    for (const std::string& name : all_.class_names) print.add(name);
    for (const ImageFolderFiles::File& file : all_.files) {
      print.add(uint64_t{file.label});
      print.add(file.name);
    }
    for (const uint64_t bytes : file_sizes()) print.add(bytes);
    add_some_contents(print);
    return print.value();
  }

  void read(int64_t index, Sample& sample, const DecodeHintFunction& reduction) const override {
    const ImageFolderFiles::File& file = all_.files[checked_index(index)];
    const fs::path path = all_.path(root_, file);
    thread_local std::vector<uint8_t> bytes;  // one buffer a reader, as files come by the million
    read_file(path, kMaxImageBytes, bytes);
    decode_image(bytes, path.string(), decode_, reduction, sample.image);
    sample.label = static_cast<int64_t>(file.label);
  }

  bool read_encoded(int64_t index, EncodedSample& sample) const override {
    const ImageFolderFiles::File& file = all_.files[checked_index(index)];
    read_file(all_.path(root_, file), kMaxImageBytes, sample.bytes);
    sample.decode = decode_;
    sample.label = static_cast<int64_t>(file.label);
    return true;
  }

 private:
  // Raw formats have one size for all images.
  void add_some_contents(Fingerprint& print) const {
    constexpr int64_t kMostFiles = 64;
    std::vector<uint8_t> bytes;
    const int64_t count = std::min(size(), kMostFiles);
    for (int64_t i = 0; i < count; ++i) {
      try {
        read_file(all_.path(root_, all_.files[static_cast<size_t>(i * size() / count)]), kMaxImageBytes,
                  bytes);
        print.add(bytes);
      } catch (const IoError&) {  // an error when it is read as a sample
        print.add(UINT64_MAX);
      }
    }
  }

  // Of all files, or of kMostSizes spread over them: a drive on the network takes its time for each.
  std::vector<uint64_t> file_sizes() const {
    constexpr int64_t kMostSizes = 1 << 16;
    const int64_t count = std::min(size(), kMostSizes);
    std::vector<uint64_t> sizes(static_cast<size_t>(count));
    parallel_for(count, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::error_code error;  // a file that is gone has the size -1 here, and is an error when it is read
        sizes[static_cast<size_t>(i)] =
            fs::file_size(all_.path(root_, all_.files[static_cast<size_t>(i * size() / count)]), error);
      }
    });
    return sizes;
  }

  fs::path root_;
  DecodeOptions decode_;
  ImageFolderFiles all_;
};

}  // namespace

std::string ImageFolderFiles::describe_left_out() const {
  uint64_t sum = 0;
  for (const auto& [kind, count] : left_out) sum += count;
  if (sum == 0) return {};
  const uint64_t all = sum + files.size();
  return fmt::format("{} of {} file{} {} left out: {}", sum, all, all == 1 ? "" : "s",
                     sum == 1 ? "is" : "are", describe_counts(left_out));
}

ImageFolderFiles list_image_folder(const fs::path& root, const std::vector<std::string>& class_names) {
  ImageFolderFiles all;
  const std::vector<std::string> folders = list_class_folders(root, all.left_out);
  all.class_names = class_names.empty() ? folders : class_names;
  tell_missing_classes(root, folders, all.class_names);
  std::unordered_map<std::string_view, size_t> labels;
  for (size_t i = 0; i < all.class_names.size(); ++i) labels.emplace(all.class_names[i], i);
  const FolderCache cache(root);
  const int64_t now = nanoseconds_now();
  ListedClasses listed;
  if (!list_classes(root, folders, cache.load(), listed)) store_settled(cache, listed, now);
  for (const std::string& name : folders) add_class(root, name, labels, std::move(listed[name]), all);
  return all;
}

ImageFolderFiles list_images(const fs::path& folder) {
  ImageFolderFiles all;
  add_images(list_class(folder), 0, all);
  return all;
}

std::shared_ptr<const Dataset> open_image_folder(const fs::path& root, const ImageFolderOptions& options) {
  return std::make_shared<ImageFolder>(root, options);
}

}  // namespace sinter::nn::data
