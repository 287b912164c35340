#include "align.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/faces/align.h>
#include <sinter/nn/data/faces/landmarks.h>
#include <sinter/nn/data/formats/file_bytes.h>
#include <sinter/nn/data/image/encode_jpeg.h>
#include <sinter/nn/data/image/files/encode_png.h>
#include <sinter/nn/data/image/files/image_file.h>

#include "common/console.h"
#include "common/progress_bar.h"
#include "common/stop.h"
#include "common/text.h"

namespace sinter_align {
namespace {

namespace fs = std::filesystem;
namespace data = sinter::nn::data;
using sinter::Error;
using sinter::IoError;
using sinter::examples::counted;
using sinter::examples::say;
using sinter::examples::stop_signal;

constexpr uint64_t kMostFileBytes = uint64_t{200} << 20;

/// The faces that are left out: named as they are met, and counted.
class LeftOut {
 public:
  LeftOut(const Options& options) : options_(options) {}

  /// Throws IoError for the one that is too many.
  void add(const data::Landmarks& face, const std::string& reason) {
    const std::string text = fmt::format("{}, line {}: {}", options_.landmarks, face.line, reason);
    if (++count_ > options_.max_damaged) {
      throw IoError(options_.max_damaged == 0
                        ? text + "; --max-damaged puts up with some"
                        : fmt::format("{}; more than --max-damaged {}", text, options_.max_damaged));
    }
    sinter::examples::complain("left out: {}", text);
  }
  int64_t count() const { return count_; }

 private:
  const Options& options_;
  int64_t count_ = 0;
};

/// Reads and decodes the image of a face.
data::Image read_image(const Options& options, const data::Landmarks& face) {
  const fs::path path = fs::path(options.images) / face.path;
  data::Image image;
  data::decode_image(data::read_file(path, kMostFileBytes), path.string(), {}, {}, image);
  return image;
}

/// Calls `work` for every face, on several threads; what is wrong with a face is an Error of its, told and
/// counted in the order of the faces. False if a signal stopped it.
bool for_each_face(const Options& options, const std::vector<data::Landmarks>& faces, LeftOut& left_out,
                   const std::function<void(size_t face)>& work) {
  const auto count = static_cast<int64_t>(faces.size());
  sinter::examples::ProgressBar bar(options.check ? "checking" : "aligning", count);
  std::vector<std::string> wrong(static_cast<size_t>(32 * sinter::num_threads()));
  for (int64_t begin = 0; begin < count; begin += static_cast<int64_t>(wrong.size())) {
    const int64_t now = std::min(static_cast<int64_t>(wrong.size()), count - begin);
    sinter::parallel_for(now, 1, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to && stop_signal() == 0; ++i) {
        std::string& reason = wrong[static_cast<size_t>(i)];
        reason.clear();
        const auto face = static_cast<size_t>(begin + i);
        try {
          if (const char* refusal = data::refusal_of(faces[face].points))
            throw IoError(fmt::format("{}: {}", faces[face].path, refusal));
          work(face);
        } catch (const IoError& error) {
          reason = error.what();
        }
      }
    });
    if (stop_signal() != 0) return false;
    for (int64_t i = 0; i < now; ++i) {
      if (const std::string& reason = wrong[static_cast<size_t>(i)]; !reason.empty())
        left_out.add(faces[static_cast<size_t>(begin + i)], reason);
    }
    bar.update({.step = begin + now, .items = begin + now, .training = false});
  }
  return true;
}

/// Where each face goes. Throws Error if two would have one file, or one is there already.
std::vector<std::string> plan_outputs(const Options& options, const std::vector<data::Landmarks>& faces) {
  std::error_code ignored;
  if (fs::equivalent(options.images, options.output, ignored))
    throw Error(fmt::format("{}: faces would take the place of the photographs; name another folder",
                            options.output));
  std::vector<std::string> outputs;
  for (const data::Landmarks& face : faces) {
    fs::path path = (fs::path(options.output) / face.path).lexically_normal();
    path.replace_extension(options.format == "png" ? ".png" : ".jpg");
    if (!options.force && fs::exists(path, ignored))
      throw Error(fmt::format("{} is there already; --force replaces it", path.string()));
    outputs.push_back(path.string());
  }
  std::vector<size_t> order(faces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return std::string_view(outputs[i]); });
  const auto twice =
      std::ranges::adjacent_find(order, {}, [&](size_t i) { return std::string_view(outputs[i]); });
  if (twice == order.end()) return outputs;
  throw Error(fmt::format("{}: lines {} and {} are both of {}", options.landmarks, faces[*twice].line,
                          faces[*(twice + 1)].line, outputs[*twice]));
}

/// Makes the file under another name, so that it is complete when it is there. What fails is an Error that
/// ends the run: the disk is no damaged image.
void write_file(const fs::path& path, const std::vector<uint8_t>& bytes) {
  const fs::path hidden = path.parent_path() / ("." + path.filename().string() + ".part");
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream file(hidden, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (file) fs::rename(hidden, path, error);
  if (file && !error) return;
  std::error_code ignored;
  fs::remove(hidden, ignored);
  throw Error(fmt::format("{}: cannot be written{}{}", path.string(), error ? ": " : "",
                          error ? error.message() : ""));
}

std::vector<data::Landmarks> open(const Options& options) {
  std::error_code ignored;
  if (!fs::is_directory(options.images, ignored))
    throw Error(fmt::format("{}: there is no such folder", options.images));
  if (options.threads > 0) sinter::set_num_threads(options.threads);
  return data::read_landmarks(fs::path(options.landmarks));
}

/// "4 faces of 112x112 pixels (3 more are left out)".
std::string of_faces(size_t all, const Options& options, const LeftOut& left_out) {
  const int64_t missing = left_out.count();
  return fmt::format(
      "{0} of {1}x{1} pixels{2}", counted(static_cast<int64_t>(all) - missing, "face"), options.size,
      missing == 0 ? "" : fmt::format(" ({} more {} left out)", missing, missing == 1 ? "is" : "are"));
}

/// How far faces are from the template, in pixels.
struct Distances {
  std::vector<double> sorted;
  std::string worst;  // the face that is furthest

  double at(double share) const {
    return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
  }
};

Distances sorted(const std::vector<data::Landmarks>& faces, const std::vector<double>& distances) {
  Distances result;
  size_t worst = 0;
  for (size_t i = 0; i < faces.size(); ++i) {
    if (distances[i] < 0) continue;  // left out
    result.sorted.push_back(distances[i]);
    if (distances[i] > distances[worst]) worst = i;
  }
  std::ranges::sort(result.sorted);
  result.worst = faces[worst].path;
  return result;
}

}  // namespace

int align(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<data::Landmarks> faces = open(options);
  const std::vector<std::string> outputs = plan_outputs(options, faces);
  LeftOut left_out(options);
  const bool finished = for_each_face(options, faces, left_out, [&](size_t i) {
    const data::Image image = read_image(options, faces[i]);
    data::Image face;
    data::align_face(image, faces[i].points, options.size, face);
    std::vector<uint8_t> bytes;
    if (options.format == "png") {
      data::encode_png(face, bytes);
    } else {
      data::encode_jpeg(face, options.quality, bytes);
    }
    write_file(outputs[i], bytes);
  });
  if (!finished) {
    say("stopped; the faces that were finished are in {}\n", options.output);
    return 128 + stop_signal();
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  say("{}: {}, aligned in {:.1f} s\n", options.output, of_faces(faces.size(), options, left_out), seconds);
  return 0;
}

int check(const Options& options) {
  const std::vector<data::Landmarks> faces = open(options);
  const data::FivePoints expected = data::face_template(options.size);
  std::vector<double> as_is(faces.size(), -1.0), at_best(faces.size(), -1.0);
  LeftOut left_out(options);
  const bool finished = for_each_face(options, faces, left_out, [&](size_t i) {
    const data::Image image = read_image(options, faces[i]);
    if (image.height != options.size || image.width != options.size) {
      throw IoError(fmt::format("{}: expected {}x{} pixels (--size) but got {}x{}", faces[i].path,
                                options.size, options.size, image.width, image.height));
    }
    const data::FivePoints& points = faces[i].points;
    as_is[i] = data::rms_distance({}, points, expected);
    at_best[i] = data::rms_distance(data::nearest_similarity(points, expected), points, expected);
  });
  if (!finished) return 128 + stop_signal();
  say("{}: {}\n", options.landmarks, of_faces(faces.size(), options, left_out));
  if (left_out.count() == static_cast<int64_t>(faces.size())) return 0;
  const Distances is = sorted(faces, as_is), best = sorted(faces, at_best);
  say("distance from the template, rms pixels   median    90 %   worst\n");
  for (const auto& [name, all] : {std::pair<const char*, const Distances&>{"as they are", is},
                                  {"at best, if turned, scaled, moved", best}}) {
    say("  {:<36} {:>8.2f} {:>7.2f} {:>7.2f}  {}\n", name, all.at(0.5), all.at(0.9), all.at(1.0), all.worst);
  }
  const double near = best.at(0.5) + 2.0 * static_cast<double>(options.size) / 112.0;
  say(is.at(0.5) <= near
          ? "these faces are aligned\n"
          : "these faces are not aligned: networks that were trained on aligned ones see others\n");
  return 0;
}

}  // namespace sinter_align
