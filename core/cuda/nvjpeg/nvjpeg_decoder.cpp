// JPEGs decoded by a GPU's hardware engines, through nvJPEG's batched calls.
//
// The library keeps buffers in a state, which one call at a time may use until its work on the device is
// done. There are two states: while the engines work on one batch, the host's part of the next is done.
// nvJPEG takes all its memory from the pools of the device.
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include <cuda_runtime_api.h>
#include <nvjpeg.h>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_graph.h>
#include <sinter/core/cuda/cuda_memory.h>
#include <sinter/core/cuda/unique_handle.h>
#include <sinter/core/image/image_decoder.h>
#include <sinter/core/runtime/event.h>
#include <sinter/core/tensor/storage.h>

namespace sinter {
namespace {

using Handle = cuda::UniqueHandle<nvjpegHandle_t, nvjpegDestroy>;
using State = cuda::UniqueHandle<nvjpegJpegState_t, nvjpegJpegStateDestroy>;
using ParsedStream = cuda::UniqueHandle<nvjpegJpegStream_t, nvjpegJpegStreamDestroy>;
using Params = cuda::UniqueHandle<nvjpegDecodeParams_t, nvjpegDecodeParamsDestroy>;

constexpr size_t kStates = 2;

void check(nvjpegStatus_t status, const char* call) {
  if (status == NVJPEG_STATUS_SUCCESS) return;
  cuda::check(cudaGetLastError(), call);
  throw_error<DeviceError>("[nvjpeg] {} failed with status {}", call, static_cast<int>(status));
}

/// A stream of each GPU's own, as streams live until the program ends.
Stream decode_stream(Device device) {
  static std::mutex mutex;
  static auto* const streams = new std::unordered_map<int, Stream>;  // never destroyed, as the backends
  const std::lock_guard lock(mutex);
  if (const auto found = streams->find(device.index); found != streams->end()) return found->second;
  const Stream stream = backend_of(device).create_stream(device.index);
  streams->emplace(device.index, stream);
  return stream;
}

/// What nvJPEG calls for memory, which it uses on streams of its own, as if it came from cudaMalloc and went
/// by cudaFree: nothing else may be under way in it. Exceptions must not pass its frames: they end here, and
/// a shortage is remembered.
class PoolMemory {
 public:
  explicit PoolMemory(const Stream& stream) : stream_(stream) {}
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;

  nvjpegDevAllocatorV2_t device() { return {allocate<false>, release, this}; }
  nvjpegPinnedAllocatorV2_t pinned() { return {allocate<true>, release, this}; }

  /// Whether memory was missing since the last call.
  bool take_shortage() {
    const std::lock_guard lock(mutex_);
    return std::exchange(short_, false);
  }

 private:
  template <bool kPinned>
  static int allocate(void* context, void** block, size_t bytes, cudaStream_t) {
    auto& memory = *static_cast<PoolMemory*>(context);
    try {
      const StreamGuard guard(memory.stream_);
      const size_t size = bytes == 0 ? 1 : bytes;
      const auto storage = kPinned ? Storage::allocate_pinned(size, memory.stream_.device)
                                   : Storage::allocate(size, memory.stream_.device);
      if (!kPinned) Event(memory.stream_).synchronize();  // what used the block before
      const std::lock_guard lock(memory.mutex_);
      memory.blocks_.emplace(storage->data(), storage);
      *block = storage->data();
      return 0;
    } catch (const OutOfMemory&) {
      const std::lock_guard lock(memory.mutex_);
      memory.short_ = true;
      return 1;
    } catch (const std::exception& error) {
      log::warning("[nvjpeg] no memory: {}", error.what());
      return 1;
    }
  }

  static int release(void* context, void* block, size_t, cudaStream_t) {
    auto& memory = *static_cast<PoolMemory*>(context);
    try {
      std::shared_ptr<Storage> storage;
      std::unique_lock lock(memory.mutex_);
      const auto found = memory.blocks_.find(block);
      if (found == memory.blocks_.end()) {
        if (block != nullptr) log::warning("[nvjpeg] gives back {}, which it does not have", block);
        return 0;
      }
      storage = std::move(found->second);
      memory.blocks_.erase(found);
      lock.unlock();
      // Seldom: when a batch needs more, and in the end. What another thread captures meanwhile is soon
      // captured.
      while (!cuda::synchronize_device(memory.stream_.device.index))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return 0;
    } catch (const std::exception& error) {
      log::warning("[nvjpeg] memory that cannot be given back: {}", error.what());
      return 1;
    }
  }

  const Stream stream_;
  std::mutex mutex_;  // guards what follows
  std::unordered_map<void*, std::shared_ptr<Storage>> blocks_;
  bool short_ = false;
};

/// One batch at a time.
struct BatchState {
  State state;
  int batch_size = 0;  // that the state is made ready for; 0: for none
  Event done;          // the end of the work that uses the state's buffers
  // Kept for their memory.
  std::vector<const unsigned char*> files;
  std::vector<size_t> lengths;
  std::vector<nvjpegImage_t> outputs;
};

/// Looks at one header at a time.
struct Parser {
  ParsedStream stream;
  Params params;
};

/// Objects of which each serves one thread at a time.
template <class T>
class Spares {
 public:
  void add(std::unique_ptr<T> object) {
    {
      const std::lock_guard lock(mutex_);
      objects_.push_back(std::move(object));
    }
    changed_.notify_one();
  }
  std::unique_ptr<T> take_if_any() {
    const std::lock_guard lock(mutex_);
    return take_one();
  }
  std::unique_ptr<T> wait_for_one() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !objects_.empty(); });
    return take_one();
  }

 private:
  std::unique_ptr<T> take_one() {
    if (objects_.empty()) return nullptr;
    auto object = std::move(objects_.back());
    objects_.pop_back();
    return object;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<T>> objects_;
};

/// Gives an object back at the end of a scope.
template <class T>
class Borrowed {
 public:
  Borrowed(Spares<T>& spares, std::unique_ptr<T> object) : spares_(spares), object_(std::move(object)) {}
  ~Borrowed() { spares_.add(std::move(object_)); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  T& operator*() const { return *object_; }

 private:
  Spares<T>& spares_;
  std::unique_ptr<T> object_;
};

class NvjpegDecoder final : public ImageDecoder {
 public:
  explicit NvjpegDecoder(Device device) : stream_(decode_stream(device)), memory_(stream_) {
    const cuda::DeviceGuard guard(device.index);
    create_handle(device);
    unsigned cores = 0;
    check(nvjpegGetHardwareDecoderInfo(handle_.get(), &engines_, &cores), "nvjpegGetHardwareDecoderInfo");
    if (engines_ == 0) throw_error<Unsupported>("[nvjpeg] {} has no engines that decode JPEGs", device);
    for (size_t i = 0; i < kStates; ++i) {
      auto batch = std::make_unique<BatchState>();
      nvjpegJpegState_t state = nullptr;
      check(nvjpegJpegStateCreate(handle_.get(), &state), "nvjpegJpegStateCreate");
      batch->state = State(state);
      states_.add(std::move(batch));
    }
  }

  ~NvjpegDecoder() override {
    // The states' buffers must not go while the engines use them.
    const cuda::DeviceGuard guard(stream_.device.index);
    cuda::log_failure(cudaStreamSynchronize(static_cast<cudaStream_t>(stream_.native)),
                      "cudaStreamSynchronize", stream_.device.index);
  }

  std::string describe() const override {
    int major = 0, minor = 0;
    nvjpegGetProperty(MAJOR_VERSION, &major);
    nvjpegGetProperty(MINOR_VERSION, &minor);
    return fmt::format("{} engines of nvJPEG {}.{}", engines_, major, minor);
  }

  Stream stream() const override { return stream_; }

  bool takes(std::span<const uint8_t> file) override {
    const cuda::DeviceGuard guard(stream_.device.index);
    const Borrowed<Parser> parser(parsers_, take_parser());
    const Parser& p = *parser;
    if (nvjpegJpegStreamParseHeader(handle_.get(), file.data(), file.size(), p.stream.get()) !=
        NVJPEG_STATUS_SUCCESS)
      return false;
    int refused = 1;  // 0 says that it is supported
    const nvjpegStatus_t status =
        nvjpegDecodeBatchedSupportedEx(handle_.get(), p.stream.get(), p.params.get(), &refused);
    return status == NVJPEG_STATUS_SUCCESS && refused == 0;
  }

  std::vector<size_t> decode(std::span<const EncodedImage> images) override {
    std::vector<size_t> refused;
    if (images.empty()) return refused;
    const cuda::DeviceGuard guard(stream_.device.index);
    const Borrowed<BatchState> batch(states_, states_.wait_for_one());
    if (queue(*batch, images)) return refused;
    // One bad file fails the whole call: the others go alone.
    for (size_t i = 0; i < images.size(); ++i) {
      if (images.size() == 1 || !queue(*batch, images.subspan(i, 1))) refused.push_back(i);
    }
    return refused;
  }

 private:
  // Chroma of fewer samples is repeated. NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION would interpolate it as
  // libjpeg does, at a quarter of the speed.
  void create_handle(Device device) {
    nvjpegDevAllocatorV2_t device_memory = memory_.device();
    nvjpegPinnedAllocatorV2_t pinned_memory = memory_.pinned();
    nvjpegHandle_t handle = nullptr;
    const nvjpegStatus_t status = nvjpegCreateExV2(NVJPEG_BACKEND_HARDWARE, &device_memory, &pinned_memory,
                                                   NVJPEG_FLAGS_DEFAULT, &handle);
    if (memory_.take_shortage()) throw_error<OutOfMemory>("[nvjpeg] no memory for a decoder on {}", device);
    if (status != NVJPEG_STATUS_SUCCESS) {
      cudaGetLastError();
      throw_error<Unsupported>(
          "[nvjpeg] {} has no engines that decode JPEGs, or its driver keeps them (status {})", device,
          static_cast<int>(status));
    }
    handle_ = Handle(handle);
  }

  std::unique_ptr<Parser> take_parser() {
    if (auto parser = parsers_.take_if_any()) return parser;
    auto parser = std::make_unique<Parser>();
    nvjpegJpegStream_t stream = nullptr;
    check(nvjpegJpegStreamCreate(handle_.get(), &stream), "nvjpegJpegStreamCreate");
    parser->stream = ParsedStream(stream);
    nvjpegDecodeParams_t params = nullptr;
    check(nvjpegDecodeParamsCreate(handle_.get(), &params), "nvjpegDecodeParamsCreate");
    parser->params = Params(params);
    check(nvjpegDecodeParamsSetOutputFormat(params, NVJPEG_OUTPUT_RGBI), "nvjpegDecodeParamsSetOutputFormat");
    return parser;
  }

  // False: some file of these was refused, and the pixels of all are undefined.
  bool queue(BatchState& batch, std::span<const EncodedImage> images) {
    batch.done.synchronize();
    nvjpegStatus_t status = try_queue(batch, images);
    if (status == NVJPEG_STATUS_ALLOCATOR_FAILURE) {  // seen where batches of two threads were under way
      cuda::check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream_.native)), "cudaStreamSynchronize",
                  stream_.device.index);
      status = try_queue(batch, images);
    }
    if (status == NVJPEG_STATUS_SUCCESS) return true;
    explain(status);
    return false;
  }

  // The library's calls come one after the other: with several at once it reports that memory is missing.
  nvjpegStatus_t try_queue(BatchState& batch, std::span<const EncodedImage> images) {
    const std::lock_guard lock(calls_);
    const int count = static_cast<int>(images.size());
    nvjpegStatus_t status = NVJPEG_STATUS_SUCCESS;
    if (batch.batch_size != count) {
      batch.batch_size = 0;
      status = nvjpegDecodeBatchedInitialize(handle_.get(), batch.state.get(), count, 1, NVJPEG_OUTPUT_RGBI);
    }
    if (status == NVJPEG_STATUS_SUCCESS) {
      batch.files.clear();
      batch.lengths.clear();
      batch.outputs.clear();
      for (const EncodedImage& image : images) {
        batch.files.push_back(image.file.data());
        batch.lengths.push_back(image.file.size());
        nvjpegImage_t& output = batch.outputs.emplace_back();
        output.channel[0] = image.pixels;
        output.pitch[0] = static_cast<size_t>(3 * image.width);
      }
      status = nvjpegDecodeBatched(handle_.get(), batch.state.get(), batch.files.data(), batch.lengths.data(),
                                   batch.outputs.data(), static_cast<cudaStream_t>(stream_.native));
      batch.done = Event(stream_);
    }
    batch.batch_size =
        status == NVJPEG_STATUS_SUCCESS ? count : 0;  // a failed state has to be made ready anew
    return status;
  }

  // Throws unless it may be a file's fault.
  void explain(nvjpegStatus_t status) {
    if (memory_.take_shortage())
      throw_error<OutOfMemory>("[nvjpeg] no memory to decode on {}", stream_.device);
    if (status == NVJPEG_STATUS_BAD_JPEG || status == NVJPEG_STATUS_JPEG_NOT_SUPPORTED ||
        status == NVJPEG_STATUS_INCOMPLETE_BITSTREAM)
      return;
    cuda::check(cudaGetLastError(), "nvjpegDecodeBatched", stream_.device.index);
    std::call_once(warned_, [&] {
      log::warning("[nvjpeg] decoding on {} failed with status {}; such images are decoded on the CPU",
                   stream_.device, static_cast<int>(status));
    });
  }

  const Stream stream_;
  PoolMemory memory_;  // outlives what takes memory from it
  Handle handle_;
  unsigned engines_ = 0;
  Spares<Parser> parsers_;
  Spares<BatchState> states_;
  std::mutex calls_;
  std::once_flag warned_;
};

}  // namespace

std::shared_ptr<ImageDecoder> make_nvjpeg_decoder(Device device) {
  return std::make_shared<NvjpegDecoder>(device);
}

}  // namespace sinter
