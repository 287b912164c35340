#include <sinter/nn/parallel/sync_batch_norm.h>

namespace sinter::nn {
namespace {

thread_local const Communicator* current = nullptr;

}  // namespace

SyncBatchNormScope::SyncBatchNormScope(const Communicator& ranks) : before_(current) {
  current = ranks.size() > 1 ? &ranks : nullptr;
}
SyncBatchNormScope::~SyncBatchNormScope() {
  current = before_;
}

const Communicator* SyncBatchNormScope::ranks() {
  return current;
}

}  // namespace sinter::nn
