// What takes nvJPEG's place in a build without it.
#include <sinter/core/base/error.h>
#include <sinter/core/image/image_decoder.h>

#ifndef SINTER_WITH_NVJPEG

namespace sinter {

std::shared_ptr<ImageDecoder> make_nvjpeg_decoder(Device device) {
  throw_error<Unsupported>(
      "[image_decoder] this build was made without nvJPEG, so that {} cannot decode; build it where nvjpeg.h "
      "and libnvjpeg are",
      device);
}

}  // namespace sinter

#endif
