#include <map>
#include <mutex>

#include <sinter/core/tensor/transfer.h>

namespace sinter {

void copy_async(const Tensor& to, const Tensor& from, const Stream& stream) {
  SINTER_CHECK(to.shape() == from.shape() && to.dtype() == from.dtype(),
               "[copy_async] expected two tensors of one shape and dtype but got {} and {}", to.spec(),
               from.spec());
  const Device leader = to.device().is_cpu() ? from.device() : to.device();
  SINTER_CHECK(stream.device == leader, "[copy_async] expected a stream of {} but got one of {}", leader,
               stream.device);
  if (to.spec().bytes() == 0) return;
  // Before the copy: should one of these throw, nothing is under way yet.
  to.storage()->record_stream(stream);
  from.storage()->record_stream(stream);
  backend_of(leader).copy(to.raw_data(), to.device(), from.raw_data(), from.device(), to.spec().bytes(),
                          stream);
  to.storage()->bump_version();
}

Tensor to_async(const Tensor& host, Device device) {
  if (device == host.device()) return host;
  const Tensor there = Tensor::empty(host.shape(), host.dtype(), device);
  copy_async(there, host, current_stream(device));
  return there;
}

Stream transfer_stream(Device device) {
  static std::mutex mutex;
  static auto* const streams = new std::map<Device, Stream>;  // never destroyed, as the backends
  const std::lock_guard lock(mutex);
  if (const auto found = streams->find(device); found != streams->end()) return found->second;
  const Stream stream = backend_of(device).create_stream(device.index);
  streams->emplace(device, stream);
  return stream;
}

}  // namespace sinter
