#include <algorithm>
#include <atomic>
#include <tuple>
#include <vector>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/pytorch/tensor_reader.h>

namespace sinter::nn::pytorch {
namespace {

constexpr uint64_t kMostCopies = 4;

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.raw_data()), tensor.spec().bytes()};
}

/// One tensor to be made, and all names that it has.
struct Wanted {
  PickledView view;
  std::vector<std::string> names;

  /// Whether it is all of its storage, as it lies there.
  bool is_whole() const {
    return view.is_row_major() && view.offset == 0 &&
           static_cast<uint64_t>(view.shape.numel()) == view.storage->second.elements;
  }
};

/// The tensors of one storage, by what tells views apart.
struct WantedStorage {
  using Layout = std::tuple<int64_t, std::vector<int64_t>, std::array<int64_t, kMaxRank>>;
  Record record;
  std::map<Layout, Wanted> tensors;
};

/// Copies the elements of a view, row by row, out of those of its storage.
void gather(const PickledView& view, std::span<const std::byte> from, std::span<std::byte> to) {
  const size_t element = size_of(view.dtype());
  const std::span<const int64_t> extents = view.shape.extents();
  const size_t rank = extents.size();
  const bool rows_lie = rank > 0 && view.strides[rank - 1] == 1;
  const int64_t row = rank == 0 ? 1 : extents[rank - 1];
  const int64_t row_stride = rank == 0 ? 1 : view.strides[rank - 1];
  std::array<int64_t, kMaxRank> index{};
  int64_t place = view.offset;
  for (size_t at = 0; at < to.size();) {
    if (rows_lie) {
      std::memcpy(to.data() + at, from.data() + static_cast<size_t>(place) * element,
                  static_cast<size_t>(row) * element);
      at += static_cast<size_t>(row) * element;
    } else {
      for (int64_t i = 0; i < row; ++i, at += element)
        std::memcpy(to.data() + at, from.data() + static_cast<size_t>(place + i * row_stride) * element,
                    element);
    }
    for (size_t a = rank < 2 ? 0 : rank - 1; a-- > 0;) {  // all axes but the last, innermost first
      place += view.strides[a];
      if (++index[a] < extents[a]) break;
      place -= index[a] * view.strides[a];
      index[a] = 0;
    }
  }
}

/// A bool that is neither 0 nor 1 is undefined behaviour in C++, so such a file must not become a tensor.
void check_bools(const ByteSource& source, const Record& record, std::span<const std::byte> bytes) {
  const auto bad = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  if (bad != bytes.end()) {
    source.fail("byte {}: expected a bool of 0 or 1 but got {}",
                record.begin + static_cast<uint64_t>(bad - bytes.begin()), std::to_integer<int>(*bad));
  }
}

void read_storage(const ByteSource& source, const WantedStorage& storage,
                  std::map<std::string, Tensor>& tensors) {
  const auto whole = std::find_if(storage.tensors.begin(), storage.tensors.end(),
                                  [](const auto& entry) { return entry.second.is_whole(); });
  const bool in_place = whole != storage.tensors.end();
  const PickledView& any = storage.tensors.begin()->second.view;
  const auto elements = static_cast<int64_t>(any.storage->second.elements);
  const Tensor all = Tensor::empty(in_place ? whole->second.view.shape : Shape{elements}, any.dtype());
  read_record(source, storage.record, bytes_of(all));
  if (any.dtype() == DType::kBool) check_bools(source, storage.record, bytes_of(all));
  for (auto at = storage.tensors.begin(); at != storage.tensors.end(); ++at) {
    const PickledView& view = at->second.view;
    const Tensor tensor = at == whole ? all : Tensor::empty(view.shape, view.dtype());
    if (at != whole) gather(view, bytes_of(all), bytes_of(tensor));
    for (const std::string& name : at->second.names) tensors.emplace(name, tensor);
  }
}

/// Reads all storages, several at once: their checksums take longer than reading them from a disk cache.
std::map<std::string, Tensor> read_storages(const ByteSource& source,
                                            const std::map<uint64_t, WantedStorage>& storages) {
  std::vector<const WantedStorage*> queue;
  for (const auto& [place, storage] : storages) queue.push_back(&storage);
  std::vector<std::map<std::string, Tensor>> parts(queue.size());
  std::atomic<size_t> next = 0;
  const auto work = [&](int64_t, int64_t) {
    for (size_t i = next++; i < queue.size(); i = next++) read_storage(source, *queue[i], parts[i]);
  };
  if (source.is_concurrent) {
    parallel_for(num_threads(), 1, work);
  } else {
    work(0, 1);
  }
  std::map<std::string, Tensor> tensors;
  for (auto& part : parts) tensors.merge(part);
  return tensors;
}

/// Adds a tensor to what is wanted of its storage. Gives the bytes that it takes beyond those before it.
uint64_t add_wanted(const PickledView& view, const Record& record, const std::string& name,
                    WantedStorage& storage) {
  storage.record = record;
  const auto extents = view.shape.extents();
  const auto [place, is_new] = storage.tensors.try_emplace(
      {view.offset, std::vector<int64_t>(extents.begin(), extents.end()), view.strides});
  if (is_new) place->second.view = view;
  place->second.names.push_back(name);
  return is_new ? static_cast<uint64_t>(view.shape.numel()) * size_of(view.dtype()) : 0;
}

}  // namespace

std::map<std::string, Tensor> read_tensors(const ByteSource& source, const Records& records,
                                           const PytorchPickle& pickle,
                                           const std::map<std::string, PickleValue>& values) {
  std::map<uint64_t, WantedStorage> storages;  // in the order of the file
  uint64_t total = 0;
  for (const auto& [name, value] : values) {
    const std::string what = fmt::format("[pytorch] {}: tensor {}", source.path, quote_name(name));
    const PickledView view = pickle.view_of(value, what);
    const auto& [key, storage] = *view.storage;
    const auto found = records.find(key);
    if (found == records.end()) throw IoError(fmt::format("{}: its storage {} is missing", what, key));
    const Record& record = found->second;
    const size_t element = size_of(view.dtype());
    if (record.size % element != 0 || record.size / element != storage.elements) {
      throw IoError(fmt::format("{}: {} elements of {} do not take the {} bytes from byte {}", what,
                                storage.elements, view.dtype(), record.size, record.begin));
    }
    total += add_wanted(view, record, name, storages[record.begin]);
    if (total > kMostCopies * source.size) {
      throw Unsupported(
          fmt::format("{}: with it tensors take more than {} times the file's {} bytes: they "
                      "are views of the same memory; clone them before they are saved",
                      what, kMostCopies, source.size));
    }
  }
  return read_storages(source, storages);
}

}  // namespace sinter::nn::pytorch
