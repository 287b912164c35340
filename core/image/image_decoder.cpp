#include <map>
#include <mutex>

#include <sinter/core/base/error.h>
#include <sinter/core/image/image_decoder.h>

namespace sinter {

std::shared_ptr<ImageDecoder> hardware_image_decoder(Device device) {
  if (!device.is_cuda()) throw_error<Unsupported>("[image_decoder] {} has no engines that decode", device);
  backend_of(device);  // throws if it is not there
  static std::mutex mutex;
  static auto* const decoders = new std::map<Device, std::weak_ptr<ImageDecoder>>;  // as the backends
  const std::lock_guard lock(mutex);
  std::weak_ptr<ImageDecoder>& known = (*decoders)[device];
  if (auto decoder = known.lock()) return decoder;
  auto decoder = make_nvjpeg_decoder(device);
  known = decoder;
  return decoder;
}

}  // namespace sinter
