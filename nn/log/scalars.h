// Numbers that a run has logged, as lines of JSON: what they look like, and how they are read and cut.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <sinter/core/file_system/file_system.h>

namespace sinter::nn {

/// What was logged at once: {{"train/loss", 0.25}, {"train/learning_rate", 0.1}} after a step.
struct ScalarRecord {
  int64_t step = 0;                                    ///< >= 0; how many steps had been done
  double time = 0.0;                                   ///< seconds since 1970
  std::vector<std::pair<std::string, double>> values;  ///< by tag
};

/// The value of an option of a run.
using HyperParameter = std::variant<bool, double, std::string>;

/// Throws InvalidArgument unless the step is not negative and there are tags that can be written everywhere:
/// at most 1,000 bytes of UTF-8 without control characters, no tag twice, and none "step" or "time".
void check_record(const ScalarRecord& record);

/// {"step":20,"time":1763818194.25,"train/loss":0.25} and a line feed. JSON has no numbers for those that are
/// not finite: they are the texts "NaN", "Infinity" and "-Infinity".
std::string to_json_line(const ScalarRecord& record);

/// The inverse, without the line feed. Throws IoError that begins with `place` if the line is no such object.
ScalarRecord parse_json_line(std::string_view line, const std::string& place);

/// All records of a file of such lines. What stands behind the last line feed was cut short as its writer was
/// killed, and is passed over. Throws IoError, with the number of the line, if the file cannot be read, or is
/// another kind of file.
std::vector<ScalarRecord> read_scalars(const std::filesystem::path& path,
                                       FileSystem& files = FileSystem::native());

/// Takes the records of later steps than `last_step` out of such a file, and what was cut short at its end;
/// all else stays byte for byte. The file is replaced in one step. Throws IoError, and changes nothing, as
/// read_scalars.
void cut_scalars(const std::filesystem::path& path, int64_t last_step,
                 FileSystem& files = FileSystem::native());

}  // namespace sinter::nn
