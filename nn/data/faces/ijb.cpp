#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/faces/ijb.h>
#include <sinter/nn/data/faces/landmarks.h>

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::string name_of_set(const fs::path& meta) {
  std::vector<std::string> found;
  for (const char* const name : {"ijbb", "ijbc"}) {
    if (is_file(meta / (std::string(name) + "_face_tid_mid.txt"))) found.emplace_back(name);
  }
  if (found.size() != 1) {
    throw_error<IoError>("[faces] {}: expected ijbb_face_tid_mid.txt or ijbc_face_tid_mid.txt but got {}",
                         meta.string(), found.empty() ? "neither" : "both");
  }
  return found.front();
}

/// The files for 1:N, if all are there. Some without the others are an error.
void find_searches(const fs::path& meta, IjbSet& set) {
  set.gallery_names =
      set.name == "ijbb" ? std::vector<std::string>{"S1", "S2"} : std::vector<std::string>{"G1", "G2"};
  for (const std::string& name : set.gallery_names)
    set.galleries.push_back(meta / (set.name + "_1N_gallery_" + name + ".csv"));
  set.probes = meta / (set.name + "_1N_probe_mixed.csv");
  std::vector<fs::path> all = set.galleries;
  all.push_back(set.probes);
  const auto missing = std::ranges::find_if_not(all, is_file);
  if (missing == all.end()) return;
  if (std::ranges::any_of(all, is_file))
    throw_error<IoError>("[faces] {}: there is no such file, which 1:N needs beside the others",
                         missing->string());
  set.galleries.clear();
  set.gallery_names.clear();
  set.probes.clear();
}

}  // namespace

std::vector<int64_t> IjbSet::by_template() const {
  std::vector<int64_t> places(images.size());
  std::iota(places.begin(), places.end(), int64_t{0});
  const auto key = [this](int64_t place) {
    const IjbImage& image = images[static_cast<size_t>(place)];
    return std::tuple(image.template_id, image.media_id, place);
  };
  std::ranges::sort(places, {}, key);
  return places;
}

std::vector<IjbImage> read_ijb_images(TextLines& templates, TextLines& points) {
  std::vector<IjbImage> images;
  while (const std::optional<std::string_view> line = templates.next()) {
    const auto words = split_words(*line, 4);
    const auto template_id = words.size() == 3 ? to_whole(words[1]) : std::nullopt;
    const auto media_id = words.size() == 3 ? to_whole(words[2]) : std::nullopt;
    if (!template_id || !media_id) templates.fail("'name template medium'");
    IjbImage image{
        .name = std::string(words[0]), .template_id = *template_id, .media_id = *media_id, .points = {}};
    if (!stays_below(image.name)) templates.fail("a name inside the folder of the pictures");
    const std::optional<std::string_view> other = points.next();
    if (!other) {
      throw_error<IoError>("[faces] {}: expected as many lines as {} has, but it ends behind line {}",
                           points.name(), templates.name(), points.number());
    }
    const auto numbers = split_words(*other, 13);
    std::array<double, 11> values{};
    bool sound = numbers.size() == 12;
    for (size_t i = 0; sound && i < values.size(); ++i) {
      const std::optional<double> value = to_number(numbers[i + 1]);
      sound = value.has_value();
      values[i] = value.value_or(0.0);
    }
    if (!sound) points.fail("'name x1 y1 ... x5 y5 score'");
    if (numbers[0] != image.name)
      points.fail(
          fmt::format("'{}', as in line {} of {},", image.name, templates.number(), templates.name()));
    for (size_t i = 0; i < image.points.size(); ++i) image.points[i] = {values[2 * i], values[2 * i + 1]};
    image.score = values[10];
    images.push_back(std::move(image));
  }
  if (points.next()) points.fail(fmt::format("no more lines than {} has", templates.name()));
  if (images.empty()) throw_error<IoError>("[faces] {}: there is no picture in it", templates.name());
  return images;
}

IjbSet open_ijb(const fs::path& root) {
  const fs::path meta = root / "meta";
  std::error_code ignored;
  for (const fs::path& folder : {root / "loose_crop", meta}) {
    if (!fs::is_directory(folder, ignored))
      throw_error<IoError>("[faces] {}: there is no such folder", folder.string());
  }
  IjbSet set;
  set.name = name_of_set(meta);
  set.pictures = root / "loose_crop";
  set.pairs = meta / (set.name + "_template_pair_label.txt");
  TextLines templates(meta / (set.name + "_face_tid_mid.txt"));
  TextLines points(meta / (set.name + "_name_5pts_score.txt"));
  set.images = read_ijb_images(templates, points);
  if (!is_file(set.pairs)) throw_error<IoError>("[faces] {}: there is no such file", set.pairs.string());
  find_searches(meta, set);
  return set;
}

std::optional<IjbPair> next_ijb_pair(TextLines& lines) {
  const std::optional<std::string_view> line = lines.next();
  if (!line) return std::nullopt;
  const auto words = split_words(*line, 4);
  const auto first = words.size() == 3 ? to_whole(words[0]) : std::nullopt;
  const auto second = words.size() == 3 ? to_whole(words[1]) : std::nullopt;
  if (!first || !second || (words[2] != "0" && words[2] != "1")) lines.fail("'template template 0' or 1");
  return IjbPair{*first, *second, words[2] == "1"};
}

std::vector<IjbSubject> read_ijb_subjects(TextLines& lines) {
  std::map<int64_t, IjbSubject> subjects;
  for (bool first = true; const std::optional<std::string_view> line = lines.next(); first = false) {
    const auto fields = split_fields(*line, 3);
    const auto template_id = to_whole(fields[0]);
    const auto subject = to_whole(fields.size() > 1 ? fields[1] : std::string_view());
    if (first) {
      if (template_id || fields.size() < 2) lines.fail("names of columns, template and subject first");
      continue;
    }
    if (!template_id || !subject) lines.fail("'template,subject,...'");
    const auto [place, fresh] =
        subjects.try_emplace(*template_id, IjbSubject{*template_id, *subject, lines.number()});
    if (place->second.subject != *subject) {
      lines.fail(fmt::format("template {} of subject {}, as in line {},", *template_id, place->second.subject,
                             place->second.line));
    }
  }
  if (subjects.empty()) throw_error<IoError>("[faces] {}: there is no template in it", lines.name());
  std::vector<IjbSubject> all;
  for (const auto& [id, subject] : subjects) all.push_back(subject);
  return all;
}

}  // namespace sinter::nn::data
