#include <sinter/core/memory/storage.h>
#include <sinter/core/runtime/backend.h>

namespace sinter {

std::shared_ptr<Storage> Storage::allocate(size_t bytes, Device device) {
  Backend& backend = backend_of(device);
  MemoryPool& pool = backend.memory_pool(device.index);
  auto storage = std::make_shared<Storage>(Private{}, bytes, device);
  storage->data_ = pool.allocate(bytes, current_stream(device).id);
  storage->pool_ = &pool;
  return storage;
}

std::shared_ptr<Storage> Storage::wrap(void* data, size_t bytes, Device device,
                                       std::function<void()> release) {
  auto storage = std::make_shared<Storage>(Private{}, bytes, device);
  storage->data_ = data;
  storage->release_ = std::move(release);
  return storage;
}

Storage::~Storage() {
  if (pool_ != nullptr) pool_->deallocate(data_);
  if (release_) release_();
}

}  // namespace sinter
