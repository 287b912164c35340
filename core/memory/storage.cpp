#include <sinter/core/memory/storage.h>
#include <sinter/core/runtime/backend.h>

namespace sinter {

std::shared_ptr<Storage> Storage::allocate(size_t bytes, Device device) {
  Backend& backend = backend_of(device);
  MemoryPool& pool = backend.memory_pool(device.index);
  void* data = pool.allocate(bytes, current_stream(device).id);
  // The constructor is private, hence no make_shared. If the control block cannot be had, `storage` still
  // frees.
  std::unique_ptr<Storage> storage(new Storage(data, bytes, device));
  storage->pool_ = &pool;
  return storage;
}

std::shared_ptr<Storage> Storage::wrap(void* data, size_t bytes, Device device,
                                       std::function<void()> release) {
  std::unique_ptr<Storage> storage(new Storage(data, bytes, device));
  storage->release_ = std::move(release);
  return storage;
}

Storage::~Storage() {
  if (pool_ != nullptr) pool_->deallocate(data_);
  if (release_) release_();
}

}  // namespace sinter
