// The folders in which InsightFace keeps IJB-B and IJB-C: pictures, lists of them, and who is compared with
// whom.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sinter/nn/data/faces/align.h>
#include <sinter/nn/data/faces/text_lines.h>

namespace sinter::nn::data {

/// A picture of a template. Its points are in pixels of the file.
struct IjbImage {
  std::string name;  ///< of the file in loose_crop
  int64_t template_id = 0;
  int64_t media_id = 0;
  FivePoints points;
  double score = 0.0;  ///< of the detector
};

struct IjbSet {
  std::string name;  ///< "ijbb" or "ijbc"
  std::filesystem::path pictures, pairs;
  std::vector<IjbImage> images;  ///< in the order of the lists
  /// Files for 1:N, and what their galleries are called, as "G1"; none where the set has not all of them.
  std::vector<std::filesystem::path> galleries;
  std::vector<std::string> gallery_names;
  std::filesystem::path probes;

  /// The places of the images, by template, medium in it, and place: the order that TemplatePool takes.
  std::vector<int64_t> by_template() const;
};

/// Opens the folders loose_crop and meta in `root`, the latter with, for x = ijbb or ijbc, x_face_tid_mid.txt
/// (lines "name template medium"), x_name_5pts_score.txt ("name x1 y1 ... x5 y5 score"), whose lines i are of
/// one picture, x_template_pair_label.txt, and for 1:N x_1N_gallery_S1.csv and S2 or G1 and G2,
/// x_1N_probe_mixed.csv. Pictures and pairs are not looked at. Throws IoError, naming file and line, for what
/// is missing (but those for 1:N together), is something else, or does not fit together, and if both sets are
/// there or neither.
IjbSet open_ijb(const std::filesystem::path& root);

/// Reads the two lists. Throws as open_ijb.
std::vector<IjbImage> read_ijb_images(TextLines& templates, TextLines& points);

struct IjbPair {
  int64_t first = 0, second = 0;  ///< templates
  bool genuine = false;
};

/// The next of the lines "template template 0|1"; none at the end. Throws IoError, naming file and line, for
/// anything else.
std::optional<IjbPair> next_ijb_pair(TextLines& lines);

/// A template of 1:N, and whose it is.
struct IjbSubject {
  int64_t template_id = 0;
  int64_t subject = 0;
  int64_t line = 0;  ///< where it first stood
};

/// The templates of a file whose first line names its columns and whose others begin with template and
/// subject, a line an image: each template once, by id. Throws IoError, naming file and line, for anything
/// else, and a template of two subjects.
std::vector<IjbSubject> read_ijb_subjects(TextLines& lines);

}  // namespace sinter::nn::data
