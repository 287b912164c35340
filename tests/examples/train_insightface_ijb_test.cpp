// IJB-B and IJB-C: made-up sets whose answers are known, and faces that are aligned and embedded.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/data/image/files/encode_png.h>
#include <sinter/nn/data/image/resize.h>

#include "common/error_message.h"
#include "common/temporary_folder.h"
#include "train_insightface/data.h"
#include "train_insightface/embedder.h"
#include "train_insightface/ijb.h"
#include "train_insightface/model.h"

namespace {

using namespace train_insightface;
using sinter::Generator;
using sinter::Tensor;
using sinter::test::message_of;
using sinter::testing::TemporaryFolder;
namespace data = sinter::nn::data;
namespace fs = std::filesystem;

/// A set of templates with known scores. A template of subject s is cos(a) e_s + sin(a) u, where all e and
/// each template's own u are orthonormal: genuine scores are cos(a1) cos(a2), impostors' 0, but where a
/// template has a part of another subject's e. Each template has two media: of two pictures, and of one. The
/// media are moved by w and -w, the first one's pictures by v and -v, both axes of the template's own; media
/// are as long as 3, templates of any length, and a picture is divided by its detector's score. So whoever
/// adds pictures in place of media, normalises them or leaves their scores out gets other scores.
class KnownSet {
 public:
  static constexpr int64_t kSubjects = 14, kEach = 3, kTemplates = kSubjects * kEach;
  static constexpr int64_t kDims = kSubjects + 3 * kTemplates;

  explicit KnownSet(const fs::path& root) : root_(root) {
    Generator random(3);
    for (int64_t t = 0; t < kTemplates; ++t) {
      std::map<int64_t, double> parts = {{subject_of(t), 0.35 + 0.6 * random.uniform()}};
      // Some look like somebody else, some more than like themselves.
      if (t % 4 == 1) parts[(subject_of(t) + 3) % kSubjects] = 0.05 * static_cast<double>(t % 9) + 0.02;
      if (t % 16 == 2) parts[(subject_of(t) + 5) % kSubjects] = 0.8;
      double squares = 0.0;
      for (const auto& [subject, part] : parts) squares += part * part;
      if (squares > 0.98) parts[subject_of(t)] = 0.5;
      parts_.push_back(parts);
    }
  }

  static int64_t subject_of(int64_t t) { return t / kEach; }
  /// Ids are neither in order nor without gaps.
  static int64_t id_of(int64_t t) { return 1000 - 7 * t; }

  double score(int64_t a, int64_t b) const {
    double sum = 0.0;
    for (const auto& [subject, part] : parts_[static_cast<size_t>(a)]) {
      const auto& other = parts_[static_cast<size_t>(b)];
      if (const auto found = other.find(subject); found != other.end()) sum += part * found->second;
    }
    return sum;
  }

  void write() const {
    fs::create_directories(root_ / "meta");
    fs::create_directories(root_ / "loose_crop");
    write_pictures();
    std::ofstream pairs(root_ / "meta/ijbc_template_pair_label.txt");
    for (int64_t a = 0; a < kTemplates; ++a) {
      for (int64_t b = 0; b < a; ++b)
        pairs << id_of(a) << ' ' << id_of(b) << ' ' << (subject_of(a) == subject_of(b) ? 1 : 0) << '\n';
    }
    std::ofstream first(root_ / "meta/ijbc_1N_gallery_G1.csv"), second(root_ / "meta/ijbc_1N_gallery_G2.csv"),
        probes(root_ / "meta/ijbc_1N_probe_mixed.csv");
    for (std::ofstream* file : {&first, &second, &probes}) *file << "TEMPLATE_ID,SUBJECT_ID,FILENAME\n";
    for (int64_t t = 0; t < kTemplates; ++t) {
      for (int picture = 0; picture < 3; ++picture) {
        if (std::ofstream* file = in_gallery(t, 1)   ? &first
                                  : in_gallery(t, 2) ? &second
                                  : t % kEach != 0   ? &probes
                                                     : nullptr)
          *file << id_of(t) << ',' << subject_of(t) << ",img/" << picture << ".jpg\n";
      }
    }
  }

  /// The first templates of subjects 0 to 5, and 6 to 11; those of 12 and 13 are in neither.
  static bool in_gallery(int64_t t, int gallery) {
    return t % kEach == 0 && subject_of(t) < 12 && (subject_of(t) < 6) == (gallery == 1);
  }

 private:
  void write_pictures() const {
    std::ofstream list(root_ / "meta/ijbc_face_tid_mid.txt"), points(root_ / "meta/ijbc_name_5pts_score.txt");
    std::vector<float> rows;
    // Pictures of a template do not stand together.
    for (int picture = 0; picture < 3; ++picture) {
      for (int64_t t = 0; t < kTemplates; ++t) {
        const std::string name = std::to_string(picture * kTemplates + t) + ".jpg";
        const double score = 0.3 + 0.1 * static_cast<double>((3 * t + picture) % 7),
                     length = 1.0 + 0.1 * static_cast<double>(t);
        list << name << ' ' << id_of(t) << ' ' << (picture < 2 ? 40 : 20) << '\n';
        points << name << " 30 50 80 50 55 70 40 90 70 90 " << score << '\n';
        for (const double value : row(t, picture)) rows.push_back(static_cast<float>(length * value / score));
      }
    }
    sinter::nn::write_safetensors(root_ / "embeddings.safetensors",
                                  {{"embeddings", Tensor::from_values(rows, {3 * kTemplates, kDims})}});
  }

  std::vector<double> row(int64_t t, int picture) const {
    std::vector<double> values(static_cast<size_t>(kDims), 0.0);
    double own = 1.0;
    for (const auto& [subject, part] : parts_[static_cast<size_t>(t)]) {
      values[static_cast<size_t>(subject)] = 1.5 * part;
      own -= part * part;
    }
    const auto u = static_cast<size_t>(kSubjects + 3 * t);
    values[u] = 1.5 * std::sqrt(own);
    values[u + 1] = picture < 2 ? 2.0 : -2.0;                        // w: the media cancel
    values[u + 2] = picture == 0 ? 5.0 : picture == 1 ? -5.0 : 0.0;  // v: the pictures of a medium cancel
    return values;
  }

  fs::path root_;
  std::vector<std::map<int64_t, double>> parts_;  // by template: parts of subjects
};

Options ijb_options(const TemporaryFolder& folder) {
  Options options;
  options.ijb = folder.path().string();
  options.ijb_embeddings = (folder.path() / "embeddings.safetensors").string();
  complete(options, {});
  return options;
}

IjbResult evaluate(const Options& options) {
  const data::IjbSet set = open_ijb_set(options);
  return *compare_templates(set, read_templates(set, options));
}

TEST(TrainInsightfaceIjb, OneToOneOfAKnownSet) {
  const TemporaryFolder folder;
  const KnownSet known(folder.path());
  known.write();
  const IjbResult result = evaluate(ijb_options(folder));
  std::vector<double> genuine, impostors;
  for (int64_t a = 0; a < KnownSet::kTemplates; ++a) {
    for (int64_t b = 0; b < a; ++b)
      (KnownSet::subject_of(a) == KnownSet::subject_of(b) ? genuine : impostors).push_back(known.score(a, b));
  }
  EXPECT_EQ(result.name, "ijbc");
  EXPECT_EQ(result.images, 126);
  EXPECT_EQ(result.templates, 42);
  EXPECT_EQ(result.genuine, 42);
  EXPECT_EQ(result.impostors, 819);
  std::ranges::sort(impostors, std::greater<>());
  ASSERT_GT(impostors[40], 0.0) << "some thresholds are no zeros";
  double wins = 0.0;
  for (const double g : genuine) {
    for (const double i : impostors) wins += g > i ? 1.0 : g == i ? 0.5 : 0.0;
  }
  EXPECT_NEAR(result.area, wins / (42.0 * 819.0), 1e-9);
  ASSERT_EQ(result.rows.size(), 6u);
  const int64_t allowed[] = {0, 0, 0, 0, 8, 81};
  for (size_t i = 0; i < 6; ++i) {
    const auto& row = result.rows[i];
    EXPECT_EQ(row.exact.allowed, allowed[i]);
    const double threshold = impostors[static_cast<size_t>(allowed[i])];
    EXPECT_NEAR(row.exact.threshold, threshold, 1e-6);
    const auto accepted = std::ranges::count_if(genuine, [&](double g) { return g > threshold; });
    EXPECT_EQ(row.exact.tar, static_cast<double>(accepted) / 42.0) << i;
  }
  EXPECT_LT(result.rows[4].exact.tar, 1.0) << "or nothing is told apart";
}

TEST(TrainInsightfaceIjb, EachStepOfPoolingCounts) {
  const TemporaryFolder folder;
  const KnownSet known(folder.path());
  known.write();
  Options options = ijb_options(folder);
  const data::IjbSet set = open_ijb_set(options);
  const auto furthest = [&](const Options& with) {
    const sinter::nn::Templates templates = read_templates(set, with);
    double most = 0.0;
    for (int64_t a = 0; a < KnownSet::kTemplates; ++a) {
      for (int64_t b = 0; b < a; ++b) {
        const float score =
            templates.compare(*templates.find(KnownSet::id_of(a)), *templates.find(KnownSet::id_of(b)));
        most = std::max(most, std::abs(static_cast<double>(score) - known.score(a, b)));
      }
    }
    return most;
  };
  EXPECT_LT(furthest(options), 1e-6);
  options.ijb_score = "ignore";
  EXPECT_GT(furthest(options), 0.05);
  options = ijb_options(folder);
  options.ijb_lengths = "unit";
  EXPECT_GT(furthest(options), 0.05);
}

TEST(TrainInsightfaceIjb, OneToManyOfAKnownSet) {
  const TemporaryFolder folder;
  const KnownSet known(folder.path());
  known.write();
  const IjbResult result = evaluate(ijb_options(folder));
  ASSERT_EQ(result.searches.size(), 2u);
  bool somebody_else_is_first = false;
  for (int gallery = 1; gallery <= 2; ++gallery) {
    const IjbSearch& search = result.searches[static_cast<size_t>(gallery - 1)];
    EXPECT_EQ(search.gallery, gallery == 1 ? "G1" : "G2");
    EXPECT_EQ(search.templates, 6);
    EXPECT_EQ(search.result.mated, 12);
    EXPECT_EQ(search.result.non_mated, 16);
    std::vector<double> strangers;
    std::vector<std::pair<int64_t, double>> mated;  // rank and best score
    for (int64_t probe = 0; probe < KnownSet::kTemplates; ++probe) {
      if (probe % KnownSet::kEach == 0) continue;
      double best = -1.0, mate = -1.0;
      for (int64_t t = 0; t < KnownSet::kTemplates; ++t) {
        if (!KnownSet::in_gallery(t, gallery)) continue;
        best = std::max(best, known.score(probe, t));
        if (KnownSet::subject_of(t) == KnownSet::subject_of(probe)) mate = known.score(probe, t);
      }
      if (mate < 0) {
        strangers.push_back(best);
        continue;
      }
      int64_t rank = 1;
      for (int64_t t = 0; t < KnownSet::kTemplates; ++t) {
        if (KnownSet::in_gallery(t, gallery) && KnownSet::subject_of(t) != KnownSet::subject_of(probe))
          rank += known.score(probe, t) >= mate ? 1 : 0;
      }
      mated.emplace_back(rank, best);
    }
    const auto share = [&](const auto& which) {
      return static_cast<double>(std::ranges::count_if(mated, which)) / 12.0;
    };
    const int64_t ranks[] = {1, 5, 10};
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(search.result.found[i], share([&](const auto& m) { return m.first <= ranks[i]; }));
    somebody_else_is_first = somebody_else_is_first || search.result.found[0] < 1.0;
    std::ranges::sort(strangers, std::greater<>());
    const size_t allowed[] = {0, 0, 1};
    for (size_t i = 0; i < 3; ++i) {
      const auto& at = search.result.open_set[i];
      EXPECT_EQ(at.allowed, static_cast<int64_t>(allowed[i]));
      EXPECT_NEAR(at.threshold, strangers[allowed[i]], 1e-6);
      EXPECT_EQ(at.fnir,
                share([&](const auto& m) { return m.first > 1 || m.second <= strangers[allowed[i]]; }));
    }
  }
  EXPECT_TRUE(somebody_else_is_first) << "or ranks tell nothing";
}

TEST(TrainInsightfaceIjb, TheTableFitsAndTheReportIsWhole) {
  const TemporaryFolder folder;
  KnownSet(folder.path()).write();
  const Options options = ijb_options(folder);
  IjbResult result = evaluate(options);
  result.genuine = 19'557;
  result.impostors = 15'638'932;
  result.rows[0].exact.allowed = 15;
  result.rows[5].exact.allowed = 1'563'893;
  const std::string text = to_table(result);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 80u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
  for (const char* const part : {"ijbc: 126 pictures in 42 templates", "1e-06       15*", "1e-01  1563893 ",
                                 "G1", "rank 10", "FPIR", "* fewer than 30 impostors (k) decide"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  const auto json = to_json(result, options);
  EXPECT_EQ(json["tar_at_far"].size(), 6u);
  EXPECT_TRUE(json["tar_at_far"][1]["tar"].is_null()) << "no impostor may be accepted";
  EXPECT_TRUE(json["flip"].is_null()) << "who made the embeddings knows";
  EXPECT_EQ(json["identification"][1]["fnir_at_fpir"].size(), 3u);
  EXPECT_NEAR(json["identification_mean"]["rank_1"].get<double>(),
              (json["identification"][0]["rank_1"].get<double>() +
               json["identification"][1]["rank_1"].get<double>()) /
                  2,
              1e-12);
  for (const std::string name : {"1N_gallery_G1.csv", "1N_gallery_G2.csv", "1N_probe_mixed.csv"})
    fs::remove(folder.path() / ("meta/ijbc_" + name));
  EXPECT_NE(to_table(evaluate(options)).find("1:N  the set has no files for it"), std::string::npos);
}

TEST(TrainInsightfaceIjb, WhatDoesNotFitIsToldWithFileAndLine) {
  const TemporaryFolder folder;
  KnownSet(folder.path()).write();
  Options options = ijb_options(folder);
  const std::string root = folder.path().string(), meta = root + "/meta/";
  const auto message = [&] { return message_of<sinter::IoError>([&] { evaluate(options); }); };
  std::ofstream(meta + "ijbc_template_pair_label.txt", std::ios::app) << "1000 5 0\n";
  EXPECT_EQ(message(), "[faces] " + meta +
                           "ijbc_template_pair_label.txt, line 862: expected templates that have pictures "
                           "(not 5) but got '1000 5 0'");
  std::ofstream(meta + "ijbc_template_pair_label.txt") << "1000 993 1\n";
  EXPECT_EQ(message(), meta +
                           "ijbc_template_pair_label.txt: [roc] expected pairs of the same person and of "
                           "different ones but got 1 "
                           "and 0");
  std::ofstream(meta + "ijbc_template_pair_label.txt", std::ios::app) << "1000 944 0\n";
  std::ofstream(meta + "ijbc_1N_gallery_G2.csv", std::ios::app) << "4,7\n";
  EXPECT_EQ(message(), meta + "ijbc_1N_gallery_G2.csv, line 20: template 4 has no pictures");
  const auto embeddings = [&](const Tensor& rows) {
    sinter::nn::write_safetensors(options.ijb_embeddings, {{"embeddings", rows}});
    return message_of<sinter::Error>([&] { evaluate(options); });
  };
  const std::string file = "--ijb-embeddings " + options.ijb_embeddings +
                           ": expected the tensor 'embeddings' (126, D) in float32 but got ";
  EXPECT_EQ(embeddings(Tensor::zeros({125, 8})), file + "float32 (125, 8)");
  EXPECT_EQ(embeddings(Tensor::zeros({126, 8}, sinter::DType::kFloat64)), file + "float64 (126, 8)");
  sinter::nn::write_safetensors(options.ijb_embeddings, {{"rows", Tensor::zeros({126, 8})}});
  EXPECT_EQ(message_of<sinter::Error>([&] { evaluate(options); }), file + "none of this name");
  options.ijb = "nowhere";
  EXPECT_EQ(message_of<sinter::Error>([&] { open_ijb_set(options); }),
            "--ijb nowhere: [faces] nowhere/loose_crop: there is no such folder");
}

/// Made-up faces, each in a picture of 200x200 of its own, turned, scaled and moved at random: two people,
/// two templates of a picture each.
void write_faces(const fs::path& root, const data::Dataset& faces) {
  fs::create_directories(root / "meta");
  fs::create_directories(root / "loose_crop");
  std::ofstream list(root / "meta/ijbb_face_tid_mid.txt"), points(root / "meta/ijbb_name_5pts_score.txt");
  Generator random(4);
  for (int64_t i = 0; i < 4; ++i) {
    const double angle = 0.5 * random.uniform() - 0.25, size = 1.3 + 0.1 * random.uniform();
    data::Similarity place{size * std::cos(angle), size * std::sin(angle), 0, 0};
    const data::Point centre = place({55.5, 55.5});
    place.tx = 100 - centre.x + 6 * random.uniform();
    place.ty = 100 - centre.y + 6 * random.uniform();
    data::Image picture;
    data::move_image(faces.get(10 * (i / 2) + i % 2).image, place, 200, 200, picture);
    std::vector<uint8_t> bytes;
    data::encode_png(picture, bytes);
    const std::string name = std::to_string(i + 1) + ".jpg";  // which a PNG may be called
    std::ofstream(root / "loose_crop" / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    list << name << ' ' << i << ' ' << i << '\n';
    points << name;
    for (const data::Point& point : data::face_template(112)) {
      const data::Point moved = place(point);
      points << ' ' << moved.x << ' ' << moved.y;
    }
    points << " 1\n";
  }
  std::ofstream(root / "meta/ijbb_template_pair_label.txt") << "0 1 1\n2 3 1\n0 2 0\n1 3 0\n";
}

TEST(TrainInsightfaceIjb, FacesAreAlignedEmbeddedAndPooledInBatchesOfAnySize) {
  const TemporaryFolder folder;
  // Of 28 pixels, made larger: grain of single pixels would not outlast being sampled twice.
  const auto made_up = synthetic_faces(2, 28);
  sinter::nn::data::MemoryDataset::Content content{
      .height = 112, .width = 112, .channels = 3, .pixels = {}, .labels = {}, .class_names = {"0", "1"}};
  for (int64_t i = 0; i < made_up->size(); ++i) {
    const sinter::nn::data::Sample sample = made_up->get(i);
    sinter::nn::data::Image large;
    sinter::nn::data::resize(sample.image, 112, 112, large);
    content.pixels.insert(content.pixels.end(), large.pixels.begin(), large.pixels.end());
    content.labels.push_back(sample.label);
  }
  const auto faces = std::make_shared<sinter::nn::data::MemoryDataset>(std::move(content));
  write_faces(folder.path(), *faces);
  Options options;
  options.ijb = folder.path().string();
  options.backbone = "iresnet18";
  options.dims = 16;
  options.width = 8;
  options.batch = 8;
  options.workers = 0;
  complete(options, {});
  sinter::manual_seed(2);
  const sinter::nn::AnyModule backbone = make_backbone(options);
  const data::IjbSet set = open_ijb_set(options);
  const auto templates = embed_templates(set, backbone, options, {});
  ASSERT_TRUE(templates);
  ASSERT_EQ(templates->ids, (std::vector<int64_t>{0, 1, 2, 3}));

  // The same of the faces as they were before they were put into pictures.
  const auto originals = std::make_shared<data::Subset>(faces, std::vector<int64_t>{0, 1, 10, 11});
  sinter::nn::TemplatePool pool(16);
  int64_t at = 0;
  ASSERT_TRUE(for_each_embedding(backbone, options, {}, originals, true, [&](std::span<float> row) {
    pool.add(at, at, row);
    ++at;
  }));
  const sinter::nn::Templates expected = pool.finish();
  for (size_t a = 0; a < 4; ++a) {
    for (size_t b = 0; b < a; ++b)
      EXPECT_NEAR(templates->compare(a, b), expected.compare(a, b), 0.02f) << a << b;
    EXPECT_GT(sinter::nn::dot_product(templates->row(a), expected.row(a)), 0.98f);
  }
  // The points matter: another face's give other embeddings.
  data::IjbSet askew = set;
  for (data::IjbImage& image : askew.images) {
    for (data::Point& point : image.points) point.x += 20;
  }
  const auto others = embed_templates(askew, backbone, options, {});
  EXPECT_LT(sinter::nn::dot_product(others->row(0), expected.row(0)),
            sinter::nn::dot_product(templates->row(0), expected.row(0)));

  options.batch = 3;
  const auto in_threes = embed_templates(set, backbone, options, {});
  for (size_t i = 0; i < templates->rows.size(); ++i)
    EXPECT_NEAR(in_threes->rows[i], templates->rows[i], 1e-5f);
  EXPECT_TRUE(compare_templates(set, *templates));
}

TEST(TrainInsightfaceIjb, OtherSizesAndMissingPicturesAreTold) {
  const TemporaryFolder folder;
  write_faces(folder.path(), *synthetic_faces(2, 112));
  Options options;
  options.ijb = folder.path().string();
  options.backbone = "iresnet18";
  options.image_size = 100;
  complete(options, {});
  const data::IjbSet set = open_ijb_set(options);
  const sinter::nn::AnyModule backbone = make_backbone(options);  // which nothing reaches
  EXPECT_EQ(message_of<sinter::Error>([&] { embed_templates(set, backbone, options, {}); }),
            "--ijb: faces are aligned to a multiple of 112 or 128 pixels, --image-size is 100");
  fs::remove(folder.path() / "loose_crop/3.jpg");
  options.image_size = 112;
  options.workers = 0;
  EXPECT_NE(message_of<sinter::IoError>([&] {
              embed_templates(set, backbone, options, {});
            }).find("loose_crop/3.jpg"),
            std::string::npos);
}

}  // namespace
