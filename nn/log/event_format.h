// TensorBoard's event files: records with checksums around small protobuf messages, which are written here
// field by field.
//
// Source: the format of TFRecord files, and event.proto and summary.proto of TensorFlow.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <sinter/nn/log/scalars.h>

namespace sinter::nn {

/// The CRC-32C (Castagnoli) of bytes.
uint32_t crc32c(std::string_view bytes);

/// A message as one record of a file: its length (8 bytes), the length's checksum (4), the message, its
/// checksum (4); all little-endian, checksums are CRC-32C rotated and offset.
std::string event_record(std::string_view message);

/// The message that begins every file. `time`: seconds since 1970.
std::string version_event(double time);

/// The message that a run begins here, or goes on, whose next values are those of `step`: TensorBoard forgets
/// what files before this one have of `step` and later.
std::string start_event(double time, int64_t step);

/// A picture: the bytes of a PNG file, and what stands in it.
struct ImageRecord {
  int64_t step = 0;
  double time = 0.0;  ///< seconds since 1970
  std::string tag;
  int64_t height = 0, width = 0, channels = 0;
  std::string png;
};
std::string image_event(const ImageRecord& record);

/// What a run was given, for TensorBoard's plugin of hyper-parameters. Source: api.proto and
/// plugin_data.proto of tensorboard/plugins/hparams, version 0.
std::string hyper_parameters_event(double time, const std::map<std::string, HyperParameter>& values);

/// All values of a record, as float32.
std::string scalar_event(const ScalarRecord& record);

}  // namespace sinter::nn
