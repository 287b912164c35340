#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/storage.h>

namespace sinter {

std::shared_ptr<Storage> Storage::allocate(size_t bytes, Device device) {
  Backend& backend = backend_of(device);
  MemoryPool& pool = backend.memory_pool(device.index);
  auto storage = std::make_shared<Storage>(Private{}, bytes, device);
  storage->data_ = pool.allocate(bytes, current_stream(device).id);
  storage->pool_ = &pool;
  return storage;
}

std::shared_ptr<Storage> Storage::allocate_pinned(size_t bytes, Device device) {
  MemoryPool& pool = backend_of(device).pinned_pool(device.index);
  auto storage = std::make_shared<Storage>(Private{}, bytes, Device::cpu());
  storage->data_ = pool.allocate(bytes, 0);
  storage->pool_ = &pool;
  storage->pinned_ = !device.is_cpu();
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

void Storage::record_stream(const Stream& stream) {
  if (pool_ == nullptr || (!pinned_ && device_.is_cpu())) return;
  used_elsewhere_.store(true, std::memory_order_relaxed);
  pool_->record_stream(data_, stream.id);
}

}  // namespace sinter
