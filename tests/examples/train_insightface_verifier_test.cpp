// The pairs that train_insightface tests with, and embeddings, against a reference by hand.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sinter/core/base/error.h>
#include <sinter/core/memory/memory_pool.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/predict/named_model.h>

#include "common/error_message.h"
#include "common/temporary_folder.h"
#include "train_insightface/data.h"
#include "train_insightface/embedder.h"
#include "train_insightface/model.h"
#include "train_insightface/verifier.h"

namespace {

using namespace train_insightface;
using sinter::Tensor;
using sinter::test::message_of;
using sinter::testing::TemporaryFolder;

std::vector<int64_t> people(int64_t count, int64_t images) {
  std::vector<int64_t> all;
  for (int64_t person = 0; person < count; ++person)
    all.insert(all.end(), static_cast<size_t>(images), person);
  return all;
}

void expect_sound(const FacePairs& faces) {
  std::set<std::pair<int64_t, int64_t>> seen;
  for (size_t i = 0; i < faces.pairs.size(); ++i) {
    const auto [a, b] = faces.pairs[i];
    EXPECT_LT(a, b);
    EXPECT_TRUE(seen.insert({a, b}).second) << "a pair came twice";
    EXPECT_EQ(faces.same[i], i % 2 == 0 ? 1 : 0);
    EXPECT_EQ(faces.people[static_cast<size_t>(a)] == faces.people[static_cast<size_t>(b)],
              faces.same[i] != 0);
  }
}

TEST(TrainInsightfaceVerifier, TakesAllSamePairsAndAsManyDifferentOnes) {
  const FacePairs faces = balanced_pairs(people(10, 10));
  EXPECT_EQ(faces.pairs.size(), 900u);  // 10 people of 45 pairs
  expect_sound(faces);
  const FacePairs again = balanced_pairs(people(10, 10));
  EXPECT_EQ(faces.pairs, again.pairs);
  const FacePairs few =
      balanced_pairs(people(3, 20));  // 570 same ones, 1,200 different ones: listed, not drawn
  EXPECT_EQ(few.pairs.size(), 1140u);
  expect_sound(few);
  const FacePairs most = balanced_pairs(people(10, 10), 100);
  EXPECT_EQ(most.pairs.size(), 200u);
  expect_sound(most);
  EXPECT_THROW(balanced_pairs(people(1, 9)), sinter::InvalidArgument);
  EXPECT_THROW(balanced_pairs(people(9, 1)), sinter::InvalidArgument);
}

/// A folder of people whose images are noise around the person's own.
void make_people(const TemporaryFolder& folder, int64_t count, int64_t images) {
  for (int64_t person = 0; person < count; ++person) {
    const auto own = folder.path() / ("p" + std::to_string(person));
    std::filesystem::create_directories(own);
    for (int64_t i = 0; i < images; ++i) {
      sinter::Generator random(static_cast<uint64_t>(person)), noise(static_cast<uint64_t>(100 * person + i));
      std::ofstream file(own / ("i" + std::to_string(i) + ".pgm"), std::ios::binary);
      file << "P5 16 16 255\n";
      for (int j = 0; j < 256; ++j) file.put(static_cast<char>(random.below(200) + noise.below(50)));
    }
  }
}

Options small_options() {
  Options options;
  options.backbone = "iresnet18";
  options.image_size = 16;
  options.dims = 8;
  options.width = 8;
  options.batch = 5;
  options.workers = 0;
  complete(options, {});
  return options;
}

TEST(TrainInsightfaceVerifier, EmbeddingsAreSumsWithTheMirrorImageOfLengthOne) {
  const TemporaryFolder folder;
  make_people(folder, 2, 3);
  const Options options = small_options();
  sinter::manual_seed(2);
  const sinter::nn::AnyModule backbone = make_backbone(options);
  std::vector<std::string> paths;
  const auto images = open_image_tree("--embed", folder.path(), paths);
  EXPECT_EQ(paths, (std::vector<std::string>{"p0/i0.pgm", "p0/i1.pgm", "p0/i2.pgm", "p1/i0.pgm", "p1/i1.pgm",
                                             "p1/i2.pgm"}));
  const std::optional<Embeddings> embeddings = embed(backbone, options, {}, images);
  ASSERT_TRUE(embeddings);
  ASSERT_EQ(embeddings->count(), 6);
  EXPECT_TRUE(backbone.training()) << "as it was before";

  const sinter::NoGrad no_grad;
  const sinter::nn::EvalMode eval(backbone);
  double norms = 0.0;
  for (int64_t i = 0; i < 6; ++i) {
    const auto image = images->get(i).image;
    std::vector<float> plain, mirrored;
    for (int64_t c = 0; c < 3; ++c) {
      for (int64_t y = 0; y < 16; ++y) {
        for (int64_t x = 0; x < 16; ++x) {
          plain.push_back((static_cast<float>(image.row(y)[3 * x + c]) / 255.0f - 0.5f) / 0.5f);
          mirrored.push_back((static_cast<float>(image.row(y)[3 * (15 - x) + c]) / 255.0f - 0.5f) / 0.5f);
        }
      }
    }
    const auto a = backbone(Tensor::from_values(plain, {1, 3, 16, 16})).to_vector<float>();
    const auto b = backbone(Tensor::from_values(mirrored, {1, 3, 16, 16})).to_vector<float>();
    double length = 0.0, norm_a = 0.0, norm_b = 0.0;
    for (size_t d = 0; d < 8; ++d) {
      length += std::pow(static_cast<double>(a[d]) + static_cast<double>(b[d]), 2);
      norm_a += std::pow(static_cast<double>(a[d]), 2);
      norm_b += std::pow(static_cast<double>(b[d]), 2);
    }
    norms += (std::sqrt(norm_a) + std::sqrt(norm_b)) / 12.0;
    for (size_t d = 0; d < 8; ++d) {
      const double expected = (static_cast<double>(a[d]) + static_cast<double>(b[d])) / std::sqrt(length);
      EXPECT_NEAR(static_cast<double>(embeddings->row(i)[d]), expected, 1e-4) << i << " " << d;
    }
  }
  EXPECT_NEAR(embeddings->mean_norm, norms, 1e-4 * norms);

  write_embeddings(folder.path() / "all.safetensors", *embeddings, paths);
  const auto file = sinter::nn::read_safetensors(folder.path() / "all.safetensors");
  EXPECT_EQ(file.tensor("embeddings").to_vector<float>(), embeddings->values);
  EXPECT_EQ(file.metadata_of("paths"), "p0/i0.pgm\np0/i1.pgm\np0/i2.pgm\np1/i0.pgm\np1/i1.pgm\np1/i2.pgm\n");
  check_embeddings_file(folder.path() / "all.safetensors", paths);
  write_embeddings(folder.path() / "all.csv", *embeddings, paths);
  std::ifstream csv(folder.path() / "all.csv");
  std::string line;
  std::getline(csv, line);
  EXPECT_TRUE(line.starts_with("p0/i0.pgm,"));
  EXPECT_EQ(std::count(line.begin(), line.end(), ','), 8);
  EXPECT_EQ(std::stof(line.substr(line.find(',') + 1)), embeddings->values[0])
      << "nine digits tell every float";
}

TEST(TrainInsightfaceVerifier, AFolderOfPeopleIsVerifiedWithAllItsPairs) {
  const TemporaryFolder folder;
  make_people(folder, 3, 4);
  const Options options = small_options();
  const std::string path = folder.path().string();
  const std::vector<FacePairs> sets = open_all_pairs({path, path + "/"});
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_EQ(sets[1].name, sets[0].name + "-2");
  const FacePairs& faces = sets[0];
  EXPECT_EQ(faces.pairs.size(), 36u);
  sinter::manual_seed(2);
  const sinter::nn::AnyModule backbone = make_backbone(options);
  const std::optional<VerifiedSet> result = verify(faces, backbone, options, {});
  ASSERT_TRUE(result && result->balanced);
  EXPECT_EQ(result->all_pairs, 66);

  // The best threshold over all 18 + 48 pairs, tried one after the other.
  const std::optional<Embeddings> embeddings = embed(backbone, options, {}, faces.images);
  double best = 0.0;
  for (int t = 0; t <= 400; ++t) {
    double right[2] = {0, 0};
    for (int64_t a = 0; a < 12; ++a) {
      for (int64_t b = a + 1; b < 12; ++b) {
        const bool same = a / 4 == b / 4;
        if ((squared_distance(embeddings->row(a), embeddings->row(b)) < t * 0.01) == same)
          right[same ? 1 : 0] += 1;
      }
    }
    best = std::max(best, (right[0] / 48 + right[1] / 18) / 2);
  }
  EXPECT_NEAR(result->balanced->accuracy, best, 1e-12);
}

TEST(TrainInsightfaceVerifier, AFoldersEmbeddingIsTheMeanThatKeepsItsLength) {
  const TemporaryFolder folder;
  make_people(folder, 2, 3);
  // Paths are sorted byte by byte: images of p0 stand before and behind those of p0/i1.
  std::filesystem::rename(folder.path() / "p0/i1.pgm", folder.path() / "x.pgm");
  std::filesystem::create_directories(folder.path() / "p0/i1");
  std::filesystem::rename(folder.path() / "x.pgm", folder.path() / "p0/i1/x.pgm");
  std::filesystem::rename(folder.path() / "p1/i0.pgm", folder.path() / "z.pgm");
  Options options = small_options();
  sinter::manual_seed(2);
  const sinter::nn::AnyModule backbone = make_backbone(options);
  std::vector<std::string> paths;
  const auto images = open_image_tree("--embed", folder.path(), paths);
  ASSERT_EQ(paths, (std::vector<std::string>{"p0/i0.pgm", "p0/i1/x.pgm", "p0/i2.pgm", "p1/i1.pgm",
                                             "p1/i2.pgm", "z.pgm"}));
  for (const bool flip : {true, false}) {
    options.verify_flip = flip ? "sum" : "off";
    std::vector<std::vector<double>> rows;
    for_each_embedding(backbone, options, {}, images, flip,
                       [&](std::span<float> row) { rows.emplace_back(row.begin(), row.end()); });
    std::vector<std::string> folders = paths;
    const std::optional<Embeddings> means = embed_folders(backbone, options, {}, images, folders);
    ASSERT_TRUE(means);
    ASSERT_EQ(folders, (std::vector<std::string>{".", "p0", "p0/i1", "p1"}));
    const std::vector<std::vector<size_t>> of = {{5}, {0, 2}, {1}, {3, 4}};
    for (size_t i = 0; i < of.size(); ++i) {
      for (size_t d = 0; d < 8; ++d) {
        double mean = 0.0, size = 0.0;
        for (const size_t row : of[i]) {  // with `flip` the sums of two embeddings
          mean += rows[row][d] / static_cast<double>(of[i].size() * (flip ? 2 : 1));
          size += std::abs(rows[row][d]);
        }
        EXPECT_NEAR(static_cast<double>(means->row(static_cast<int64_t>(i))[d]), mean, 1e-4 * size)
            << i << " " << d << " " << flip;
      }
    }
  }
}

TEST(TrainInsightfaceVerifier, EmbeddingsAreOfImagesAloneIfAskedFor) {
  const TemporaryFolder folder;
  make_people(folder, 2, 3);
  Options options = small_options();
  options.verify_flip = "off";
  sinter::manual_seed(2);
  const sinter::nn::AnyModule backbone = make_backbone(options);
  std::vector<std::string> paths;
  const auto images = open_image_tree("--embed", folder.path(), paths);
  const std::optional<Embeddings> embeddings = embed(backbone, options, {}, images);
  ASSERT_TRUE(embeddings);
  int64_t at = 0;
  for_each_embedding(backbone, options, {}, images, false, [&](std::span<float> row) {
    make_unit(row);
    EXPECT_EQ(squared_distance(row, embeddings->row(at++)), 0.0);
  });
  EXPECT_EQ(at, 6);
}

/// A list of `count` pairs of a folder's images, as a set.
FacePairs listed_pairs(const TemporaryFolder& folder, int64_t count) {
  const auto image = [&](int64_t i) {
    return "p" + std::to_string(i % 3) + "/i" + std::to_string(i % 4) + ".pgm";
  };
  std::ofstream list(folder.path() / "pairs.txt");
  for (int64_t i = 0; i < count; ++i)
    list << image(i) << " " << image(7 * i + 2) << " " << (i % 3 == (7 * i + 2) % 3 ? 1 : 0) << "\n";
  list.close();
  return open_all_pairs({folder.path().string()}).front();
}

TEST(TrainInsightfaceVerifier, ListedPairsAreComparedAsTheyComeInBatchesOfAnySize) {
  const TemporaryFolder folder;
  make_people(folder, 3, 4);
  const FacePairs faces = listed_pairs(folder, 11);
  ASSERT_TRUE(faces.people.empty());
  Options options = small_options();
  sinter::manual_seed(2);
  const sinter::nn::AnyModule backbone = make_backbone(options);
  const std::optional<Embeddings> whole = embed(backbone, options, {}, faces.images);
  std::vector<double> expected;
  for (int64_t i = 0; i < 11; ++i)
    expected.push_back(squared_distance(whole->row(2 * i), whole->row(2 * i + 1)));
  for (const int64_t batch : {1, 5, 64}) {
    options.batch = batch;
    const auto compared = compare(faces, backbone, options, {});
    ASSERT_TRUE(compared);
    EXPECT_TRUE(compared->embeddings.values.empty()) << "embeddings are kept";
    ASSERT_EQ(compared->distances.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(compared->distances[i], expected[i], 1e-5) << i;
    EXPECT_NEAR(compared->norms.mean(), whole->mean_norm, 1e-5 * whole->mean_norm);
  }
}

TEST(TrainInsightfaceVerifier, RanksHaveEachTheirPart) {
  const TemporaryFolder folder;
  make_people(folder, 3, 4);
  const std::string path = folder.path().string();
  const std::vector<FacePairs> sets = {open_all_pairs({path}).front(), listed_pairs(folder, 11)};
  const Options options = small_options();
  sinter::manual_seed(2);
  const sinter::nn::AnyModule backbone = make_backbone(options);
  for (const FacePairs& faces : sets) {
    const auto whole = compare(faces, backbone, options, {});
    for (const int ranks : {2, 15}) {
      ComparedPairs all;
      double norms = 0.0;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto part = compare(faces, backbone, options, {}, rank, ranks);
        ASSERT_TRUE(part);
        all.distances.insert(all.distances.end(), part->distances.begin(), part->distances.end());
        const auto& rows = part->embeddings.values;
        EXPECT_LE(rows.size(),
                  static_cast<size_t>((faces.images->size() + ranks - 1) / ranks * options.dims));
        all.embeddings.values.insert(all.embeddings.values.end(), rows.begin(), rows.end());
        norms += part->norms.count;
      }
      EXPECT_EQ(norms, whole->norms.count);
      ASSERT_EQ(all.distances.size(), whole->distances.size());
      ASSERT_EQ(all.embeddings.values.size(), whole->embeddings.values.size());
      for (size_t i = 0; i < all.distances.size(); ++i)
        EXPECT_NEAR(all.distances[i], whole->distances[i], 1e-5) << i;
      for (size_t i = 0; i < all.embeddings.values.size(); ++i)
        EXPECT_NEAR(all.embeddings.values[i], whole->embeddings.values[i], 1e-5f) << i;
    }
  }
}

TEST(TrainInsightfaceVerifier, MoreListedPairsTakeNoMoreOfThePool) {
  const TemporaryFolder folder;
  make_people(folder, 3, 4);
  const Options options = small_options();
  const sinter::nn::AnyModule backbone = make_backbone(options);
  sinter::MemoryPool& pool = sinter::backend_of({}).memory_pool(0);
  const auto peak = [&](int64_t pairs) {
    const FacePairs faces = listed_pairs(folder, pairs);
    pool.reset_peaks();
    verify(faces, backbone, options, {});
    return pool.stats().peak_live_bytes;
  };
  const size_t of_few = peak(10);
  EXPECT_EQ(peak(30), of_few);
}

TEST(TrainInsightfaceVerifier, WithoutTheMirrorImageAnEmbeddingIsTheImagesOwn) {
  const TemporaryFolder folder;
  make_people(folder, 2, 2);
  const Options options = small_options();
  sinter::manual_seed(2);
  const sinter::nn::AnyModule backbone = make_backbone(options);
  std::vector<std::string> paths;
  const auto images = open_image_tree("--embed", folder.path(), paths);
  std::vector<float> own;
  const auto norms = for_each_embedding(backbone, options, {}, images, false, [&](std::span<float> row) {
    own.insert(own.end(), row.begin(), row.end());
  });
  ASSERT_TRUE(norms);
  EXPECT_EQ(norms->count, 4);
  const sinter::NoGrad no_grad;
  const sinter::nn::EvalMode eval(backbone);
  for (int64_t i = 0; i < 4; ++i) {
    const auto image = images->get(i).image;
    std::vector<float> plain;
    for (int64_t c = 0; c < 3; ++c) {
      for (int64_t p = 0; p < 256; ++p)
        plain.push_back((static_cast<float>(image.pixels[static_cast<size_t>(3 * p + c)]) / 255.0f - 0.5f) /
                        0.5f);
    }
    auto expected = backbone(Tensor::from_values(plain, {1, 3, 16, 16})).to_vector<float>();
    make_unit(expected);
    const std::span<float> row(own.data() + 8 * i, 8);
    make_unit(row);
    for (size_t d = 0; d < 8; ++d) EXPECT_NEAR(row[d], expected[d], 1e-4f);
  }
}

TEST(TrainInsightfaceVerifier, WhatCameOfASetIsToldInWordsJsonAndACurve) {
  // 3,000 impostors at cosines of 0, .001, ... up to .2999; 3,000 genuine pairs of which 30 are below .298.
  FacePairs faces;
  faces.name = "lfw";
  ComparedPairs compared;
  const auto add = [&](double cosine, uint8_t same) {
    faces.pairs.emplace_back(2 * faces.same.size(), 2 * faces.same.size() + 1);
    faces.same.push_back(same);
    compared.distances.push_back(2.0 - 2.0 * cosine);
  };
  for (int i = 0; i < 3000; ++i) {
    add(i * 0.0001, 0);
    add(i % 100 == 0 ? 0.1 : 0.9, 1);
  }
  compared.norms = {40.0, 2.0};
  const VerifiedSet set = judge(faces, compared);
  ASSERT_TRUE(set.curve);
  EXPECT_EQ(set.curve->at_1e3.allowed, 3);
  EXPECT_NEAR(set.curve->at_1e3.threshold, 0.2996, 1e-6);
  EXPECT_EQ(set.curve->at_1e3.tar, 0.99);
  EXPECT_EQ(set.curve->at_1e2.allowed, 30);
  EXPECT_EQ(set.folds.folds.size(), 10u);
  const std::string text = to_string(set);
  EXPECT_NE(
      text.find("lfw: accuracy 99.50 +- 0.00 % (6000 pairs, threshold 0.20, cosine 0.900)  XNorm 20.00"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("TAR at FAR 1e-3 99.00 % (k 3, few), 1e-2 99.00 % (k 30)"), std::string::npos) << text;
  const auto json = to_json({set})["lfw"];
  EXPECT_EQ(json["folds"].size(), 10u);
  EXPECT_NEAR(json["cosine_threshold"].get<double>(), 1.0 - json["threshold"].get<double>() / 2.0, 1e-12);
  EXPECT_EQ(json["tar_at_far"][0]["tar"].get<double>(), 0.99);

  const TemporaryFolder folder;
  write_curves(folder.path(), {set});
  std::ifstream csv(folder.path() / "roc-lfw.csv");
  std::string line, last;
  std::getline(csv, line);
  EXPECT_EQ(line, "threshold,far,tar");
  std::getline(csv, line);
  EXPECT_EQ(line, "0.899999976,0,0");
  while (std::getline(csv, line)) last = line;
  EXPECT_EQ(last, "-inf,1,1");

  // 90 pairs of a kind allow no impostor at 1e-3; pairs of one kind have no curve.
  faces.pairs.resize(180);
  faces.same.resize(180);
  compared.distances.resize(180);
  const VerifiedSet few = judge(faces, compared);
  EXPECT_NE(to_string(few).find("TAR at FAR 1e-3 -, 1e-2 -"), std::string::npos) << to_string(few);
  EXPECT_TRUE(to_json({few})["lfw"]["tar_at_far"][0]["tar"].is_null());
  faces.same.assign(180, 1);
  EXPECT_FALSE(judge(faces, compared).curve);
}

TEST(TrainInsightfaceVerifier, WhatIsNotThereIsNamed) {
  const TemporaryFolder folder;
  EXPECT_EQ(message_of<sinter::Error>([] { open_all_pairs({"nowhere"}); }),
            "--verify nowhere: there is no such file or folder");
  make_people(folder, 1, 4);
  const std::string path = folder.path().string();
  EXPECT_EQ(message_of<sinter::Error>([&] { open_all_pairs({path}); }),
            "--verify " + path +
                ": expected at least two people, and two images of one, but got 4 images in 6 pairs "
                "of one person");
  std::vector<std::string> paths;
  EXPECT_EQ(message_of<sinter::Error>([&] { open_image_tree("--embed", "nowhere", paths); }),
            "--embed nowhere is no folder");
  std::filesystem::create_directories(folder.path() / "empty");
  EXPECT_EQ(message_of<sinter::Error>([&] { open_image_tree("--embed", folder.path() / "empty", paths); }),
            "--embed " + path + "/empty has no images (.jpg, .jpeg, .png, .webp, .pgm or .ppm)");
}

TEST(TrainInsightfaceModel, AFileOfWeightsSaysWhatItIsOf) {
  const TemporaryFolder folder;
  const Options options = small_options();
  const sinter::nn::AnyModule backbone = make_backbone(options);
  const auto file = folder.path() / "w.safetensors";
  sinter::nn::write_safetensors(file, backbone.state());
  Options other;
  const sinter::nn::State state = read_weights(file, other).state;
  EXPECT_EQ(other.backbone, "iresnet18");
  EXPECT_EQ(other.dims, 8);
  EXPECT_EQ(other.width, 8);
  EXPECT_EQ(other.image_size, 16);
  complete(other, {});
  EXPECT_TRUE(make_backbone(other).load_state(state).missing.empty());
  // A parallel model of PyTorch's has a prefix.
  sinter::nn::State prefixed;
  for (const auto& [name, value] : state) prefixed["module." + name] = value;
  sinter::nn::write_safetensors(file, prefixed);
  EXPECT_TRUE(make_backbone(other).load_state(read_weights(file, other).state).missing.empty());
  // What the command line says stands.
  Options given;
  given.given = {"--dims"};
  read_weights(file, given);
  EXPECT_EQ(given.dims, 512);
  given.given = {"--backbone"};
  given.backbone = "iresnet34";
  EXPECT_EQ(
      message_of<sinter::Error>([&] { read_weights(file, given); }),
      "--load-weights " + file.string() + ": these are weights of an iresnet18, --backbone says iresnet34");
}

TEST(TrainInsightfaceModel, MetadataSayWhatShapesCannot) {
  const TemporaryFolder folder;
  Options options = small_options();
  options.image_size = 12;  // whose last map is as large as that of 16 pixels
  const auto file = folder.path() / "w.safetensors";
  const auto metadata = describe_model(options, sinter::examples::describe_data(*synthetic_faces(3, 12)));
  EXPECT_EQ(metadata.classes, (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(metadata.train_images, 30);
  EXPECT_EQ(metadata.resize, "exact");
  EXPECT_EQ(sinter::nn::make_model(metadata).parameter_count(), make_backbone(options).parameter_count());
  EXPECT_EQ(metadata.mean, std::vector<float>(3, 0.5f));
  sinter::nn::write_safetensors(file, make_backbone(options).state(), to_safetensors_metadata(metadata));
  Options other;
  read_weights(file, other);
  EXPECT_EQ(other.image_size, 12);
  EXPECT_EQ(other.backbone, "iresnet18");
  EXPECT_EQ(other.dims, 8);
}

}  // namespace
