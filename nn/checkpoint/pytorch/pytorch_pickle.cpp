#include <algorithm>

#include <sinter/core/base/checked.h>
#include <sinter/core/base/error.h>
#include <sinter/nn/checkpoint/pytorch/pytorch_pickle.h>

namespace sinter::nn::pytorch {
namespace {

enum Tag : uint8_t {
  // names
  kOrderedDict,
  kRebuildTensor,    // (storage, offset, size, stride)
  kRebuildTensorV2,  // (storage, offset, size, stride, requires_grad, hooks[, metadata])
  kRebuildOther,     // of a kind of tensor that is not known: `number` is that of an opaque value
  kRebuildParameter,
  kRebuildFromType,
  kSize,
  kStorageType,  // `number` is its index
  // objects
  kTensor,       // `number` is that of the arguments' sequence: what it is, is asked only if it is wanted
  kTensorV2,     // likewise
  kOtherTensor,  // `number` as in kRebuildOther
  kStorage,      // `number` is its index among the storages
};

constexpr StorageType kStorageTypes[] = {
    {"FloatStorage", 4, DType::kFloat32}, {"DoubleStorage", 8, DType::kFloat64},
    {"HalfStorage", 2, DType::kFloat16},  {"BFloat16Storage", 2, DType::kBFloat16},
    {"LongStorage", 8, DType::kInt64},    {"IntStorage", 4, DType::kInt32},
    {"ByteStorage", 1, DType::kUInt8},    {"BoolStorage", 1, DType::kBool},
    {"CharStorage", 1, std::nullopt},     {"ShortStorage", 2, std::nullopt},
    {"ComplexFloatStorage", 8, {}},       {"ComplexDoubleStorage", 16, {}},
    {"QInt8Storage", 1, std::nullopt},    {"QUInt8Storage", 1, std::nullopt},
    {"QInt32Storage", 4, std::nullopt},   {"QUInt4x2Storage", 1, std::nullopt},
    {"QUInt2x4Storage", 1, std::nullopt}};

constexpr struct {
  std::string_view module, name;
  Tag tag;
} kKnown[] = {{"collections", "OrderedDict", kOrderedDict},
              {"torch._utils", "_rebuild_tensor", kRebuildTensor},
              {"torch._utils", "_rebuild_tensor_v2", kRebuildTensorV2},
              {"torch._utils", "_rebuild_parameter", kRebuildParameter},
              {"torch._utils", "_rebuild_parameter_with_state", kRebuildParameter},
              {"torch._tensor", "_rebuild_from_type_v2", kRebuildFromType},
              {"torch", "Size", kSize}};

bool is_digits(std::string_view key) {
  return !key.empty() && key.size() <= kMostKeyDigits &&
         std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

const StorageType* find_storage_type(std::string_view name) {
  const auto* found = std::find_if(std::begin(kStorageTypes), std::end(kStorageTypes),
                                   [&](const StorageType& type) { return type.name == name; });
  return found == std::end(kStorageTypes) ? nullptr : found;
}

bool PickledView::is_row_major() const {
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] > 1 && strides[static_cast<size_t>(axis)] != shape.stride(axis))
      return shape.numel() == 0;
  }
  return true;
}

bool PytorchPickle::is_tensor(const Value& value) {
  return value.kind == Kind::kObject && value.tag != kStorage;
}

std::string PytorchPickle::describe(const Value& value) const {
  switch (value.kind) {
    case Kind::kUnset:
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kNumber:
    case Kind::kFloat:
      return "a number";
    case Kind::kBytes:
    case Kind::kText:
      return "a string";
    case Kind::kSequence:
      return "a list or tuple";
    case Kind::kDict:
      return "a dict";
    case Kind::kName:
      return "a class or function";
    case Kind::kObject:
      return is_tensor(value) ? "a tensor" : "a storage";
    case Kind::kOpaque:
      return "a " + opaque_name(value);
  }
  return {};
}

// ---- names and calls ----

PickleValue PytorchPickle::on_name(std::string_view module, std::string_view name) {
  for (const auto& known : kKnown) {
    if (known.module == module && known.name == name) return {.kind = Kind::kName, .tag = known.tag};
  }
  const StorageType* type = module == "torch" ? find_storage_type(name) : nullptr;
  if (type != nullptr)
    return {.kind = Kind::kName, .tag = kStorageType, .number = type - std::begin(kStorageTypes)};
  const Value opaque = make_opaque(module, name);
  if (module == "torch._utils" && name.starts_with("_rebuild_"))
    return {.kind = Kind::kName, .tag = kRebuildOther, .number = opaque.number};
  return opaque;
}

PickleValue PytorchPickle::on_call(const Value& callable, const Value& arguments) {
  const Items* given = items(arguments);
  if (callable.kind != Kind::kName) fail("refuses a call of {}", describe(callable));
  if (given == nullptr) fail("expected a tuple of arguments but got {}", describe(arguments));
  const auto object = [](Tag tag, int64_t number) {
    return Value{.kind = Kind::kObject, .tag = tag, .number = number};
  };
  switch (callable.tag) {
    case kOrderedDict:
      return make_ordered_dict(*given);
    case kRebuildTensor:
      return object(kTensor, arguments.number);
    case kRebuildTensorV2:
      return object(kTensorV2, arguments.number);
    case kRebuildOther:
      return object(kOtherTensor, callable.number);
    case kRebuildFromType:
      return make_from_type(*given);
    case kRebuildParameter:
    case kSize:
      if (!given->empty()) return given->front();
      fail("expected an argument");
    default:
      fail("refuses a call of {}", describe(callable));
  }
}

PickleValue PytorchPickle::make_ordered_dict(const Items& arguments) {
  if (arguments.empty()) return make_dict({});
  const Items* pairs = arguments.size() == 1 ? items(arguments.front()) : nullptr;
  if (pairs == nullptr) fail("expected a list of pairs for an OrderedDict");
  charge(pairs->size());
  Entries entries;
  entries.reserve(pairs->size());
  for (const Value& pair : *pairs) {
    const Items* both = items(pair);
    if (both == nullptr || both->size() != 2) fail("expected a list of pairs for an OrderedDict");
    entries.emplace_back(both->front(), both->back());
  }
  return make_dict(std::move(entries));
}

// (function, type, arguments, state) of a subclass of Tensor. A function of this kind once more would have no
// end in a tuple that holds itself; PyTorch writes none.
PickleValue PytorchPickle::make_from_type(const Items& arguments) {
  if (arguments.size() != 4) fail("expected four arguments of _rebuild_from_type_v2");
  const Value& function = arguments.front();
  if (function.kind == Kind::kOpaque) return function;
  if (function.tag == kRebuildFromType) fail("refuses _rebuild_from_type_v2 of itself");
  return on_call(function, arguments[2]);
}

// The state of a dict is `_metadata`; that of a tensor, what somebody has put on it.
void PytorchPickle::on_build(const Value& object, const Value& /*state*/) {
  if (object.kind != Kind::kDict && !is_tensor(object))
    fail("refuses to set the state of {}", describe(object));
}

PickleValue PytorchPickle::on_persistent_id(const Value& id) {
  const Items* parts = items(id);
  const bool is_tuple = parts != nullptr && !parts->empty() && parts->front().is_string();
  const std::string_view kind = is_tuple ? parts->front().text() : "";
  if (kind == "storage" && (parts->size() == 5 || parts->size() == 6)) return make_storage(*parts);
  // Old files of whole modules: (module, class, its file, its source).
  if (kind == "module" && parts->size() == 4 && (*parts)[1].kind == Kind::kOpaque) return (*parts)[1];
  fail("expected the persistent id of a storage");
}

// (storage, type, key, place, elements), in old files with what a view of another storage is.
PickleValue PytorchPickle::make_storage(const Items& id) {
  const Value &type = id[1], &key = id[2], &elements = id[4];
  const bool is_known = type.kind == Kind::kName && type.tag == kStorageType;
  if (!is_known && type.kind != Kind::kOpaque)
    fail("expected the type of a storage but got {}", describe(type));
  if (!key.is_string() || !is_digits(key.text()))
    fail("expected 1 to 20 digits as the key of a storage but got {}",
         key.is_string() ? shown(key.text()) : describe(key));
  if (elements.kind != Kind::kNumber || elements.number < 0 || elements.number > kMaxElements)
    fail("expected a number of elements from 0 to 2^59 of storage {}", key.text());
  PickledStorage storage{
      .type = is_known ? &kStorageTypes[type.number] : nullptr,
      .type_name = is_known ? std::string(kStorageTypes[type.number].name) : opaque_name(type),
      .elements = static_cast<uint64_t>(elements.number)};
  if (id.size() == 6 && id[5].kind != Kind::kNone) {
    storage.type = nullptr;
    storage.type_name = "view of another storage";
  }
  const auto [place, is_new] = storages_.emplace(key.text(), storage);
  if (place->second.type_name != storage.type_name || place->second.elements != storage.elements)
    fail("storage {} had another type or size before", key.text());
  numbered_.push_back(place);
  return {.kind = Kind::kObject, .tag = kStorage, .number = static_cast<int64_t>(numbered_.size()) - 1};
}

// ---- tensors ----

PickledView PytorchPickle::view_of(const Value& tensor, const std::string& what) const {
  const auto unsupported = [&](const std::string& fault) { throw Unsupported(what + ": " + fault); };
  if (tensor.tag == kOtherTensor)
    unsupported("tensors that " + opaque_name(tensor) + " makes cannot be read");
  const Items& a = *items({.kind = Kind::kSequence, .number = tensor.number});
  const bool is_v2 = tensor.tag == kTensorV2;
  if (is_v2 ? a.size() != 6 && a.size() != 7 : a.size() != 4)
    throw IoError(what + ": it has another number of parts than PyTorch's");
  if (a[0].kind != Kind::kObject || a[0].tag != kStorage) throw IoError(what + ": it has no storage");
  const Entries* bits = a.size() == 7 ? entries(a[6]) : nullptr;
  if (bits != nullptr && !bits->empty())
    unsupported("it is a view whose '" + shown(bits->front().first.text()) +
                "' is still to be done; resolve that before it is saved");
  PickledView view;
  view.storage = numbered_[static_cast<size_t>(a[0].number)];
  const PickledStorage& storage = view.storage->second;
  if (storage.type == nullptr || !storage.type->dtype)
    unsupported("tensors cannot hold the elements of a " + storage.type_name);
  const Items *extents = items(a[2]), *strides = items(a[3]);
  if (extents == nullptr || strides == nullptr || extents->size() != strides->size())
    throw IoError(what + ": expected as many extents as strides");
  if (extents->size() > static_cast<size_t>(kMaxRank))
    unsupported(fmt::format("tensors have at most {} axes, not {}", kMaxRank, extents->size()));
  lay_out(a[1], *extents, *strides, what, view);
  return view;
}

void PytorchPickle::lay_out(const Value& offset, const Items& extents, const Items& strides,
                            const std::string& what, PickledView& view) {
  const auto number = [&](const Value& value) {
    if (value.kind != Kind::kNumber || value.number < 0)
      throw IoError(what + ": expected extents, strides and an offset >= 0");
    return value.number;
  };
  int64_t elements = 1, last = view.offset = number(offset);
  bool is_empty = false, overflows = false;
  std::array<int64_t, kMaxRank> sizes{};
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    const int64_t extent = sizes[axis] = number(extents[axis]);
    const int64_t stride = view.strides[axis] = number(strides[axis]);
    int64_t way = 0;
    is_empty = is_empty || extent == 0;
    if (extent == 0) continue;
    overflows = overflows || __builtin_mul_overflow(elements, extent, &elements) ||
                __builtin_mul_overflow(extent - 1, stride, &way) || __builtin_add_overflow(last, way, &last);
  }
  if (overflows || elements > kMaxElements) throw IoError(what + ": the number of its elements exceeds 2^59");
  const uint64_t held = view.storage->second.elements;
  if (!is_empty && static_cast<uint64_t>(last) >= held)
    throw IoError(fmt::format("{}: it ends behind the {} elements of its storage", what, held));
  if (!is_empty && static_cast<uint64_t>(elements) > held)
    throw Unsupported(what + ": it repeats elements, as expand() does; clone it before it is saved");
  view.shape = Shape(std::span<const int64_t>(sizes.data(), extents.size()));
}

}  // namespace sinter::nn::pytorch
