// Engines of a device that decode image files beside its computing: nvJPEG's, on GPUs that have them.
// Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sinter/core/base/device.h>
#include <sinter/core/runtime/backend.h>

namespace sinter {

/// A file, and where its pixels go: `height` rows of `width` pixels in RGB, a byte a value, without gaps.
struct EncodedImage {
  std::span<const uint8_t> file;
  int64_t height = 0, width = 0;  ///< as the file says
  uint8_t* pixels = nullptr;      ///< in memory of the device
};

/// All members may be called from several threads at once.
class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;

  /// The engines, for people: "7 engines of nvJPEG 13.0".
  virtual std::string describe() const = 0;
  /// What decode() works on, in order; the same one for as long as the program runs.
  virtual Stream stream() const = 0;
  /// Whether the engines are made for such a file. Looks at its header only.
  virtual bool takes(std::span<const uint8_t> file) = 0;
  /// Begins to decode all images. The engines do not wait for what is on stream(): whatever used the memory
  /// of the pixels must have ended. What comes on stream() later finds them decoded; the files must stay
  /// until then. Gives the positions of images that were refused, whose pixels are then undefined; one that
  /// is refused does not concern the others. May wait for earlier calls. Throws OutOfMemory and DeviceError.
  virtual std::vector<size_t> decode(std::span<const EncodedImage> images) = 0;
};

/// The engines of a device, shared by all who ask while any of them lives. Throws Unsupported, and says why,
/// if this build or the device has none, and DeviceError if there is no such device.
std::shared_ptr<ImageDecoder> hardware_image_decoder(Device device);

/// For hardware_image_decoder().
std::shared_ptr<ImageDecoder> make_nvjpeg_decoder(Device device);

}  // namespace sinter
