#include <iterator>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/records/pickle.h>

namespace sinter::nn::data {
namespace {

enum Tag : uint8_t { kArray, kByteType, kArrayClass, kTypeClass, kReconstruct, kFromBuffer, kEncode };

constexpr struct {
  std::string_view module, name;
  Tag tag;
} kKnown[] = {{"numpy.core.multiarray", "_reconstruct", kReconstruct},
              {"numpy._core.multiarray", "_reconstruct", kReconstruct},
              {"numpy.core.numeric", "_frombuffer", kFromBuffer},
              {"numpy._core.numeric", "_frombuffer", kFromBuffer},
              {"numpy", "ndarray", kArrayClass},
              {"numpy", "dtype", kTypeClass},
              {"_codecs", "encode", kEncode}};

bool is_name(const PickleValue& value, Tag tag) {
  return value.kind == PickleValue::Kind::kName && value.tag == tag;
}

bool is_byte_type(const PickleValue& value) {
  return value.kind == PickleValue::Kind::kObject && value.tag == kByteType;
}

}  // namespace

bool ImagePickle::is_array(const Value& value) const {
  return value.kind == Kind::kObject && value.tag == kArray;
}

std::span<const uint8_t> ImagePickle::bytes_of(const Value& value) const {
  if (is_array(value)) return arrays_[static_cast<size_t>(value.number)];
  return value.kind == Kind::kBytes ? value.bytes : std::span<const uint8_t>{};
}

std::vector<std::vector<uint8_t>> ImagePickle::take_owned() {
  return {std::move_iterator(owned_.begin()), std::move_iterator(owned_.end())};
}

PickleValue ImagePickle::on_name(std::string_view module, std::string_view name) {
  for (const auto& known : kKnown) {
    if (known.module == module && known.name == name) return {.kind = Kind::kName, .tag = known.tag};
  }
  fail("refuses the name {}.{}: only arrays of bytes are known here", shown(module), shown(name));
}

PickleValue ImagePickle::on_call(const Value& callable, const Value& arguments) {
  const Items* items_given = items(arguments);
  if (items_given == nullptr) fail("expected a tuple of arguments");
  const Items& a = *items_given;
  if (is_name(callable, kReconstruct) && a.size() == 3 && is_name(a[0], kArrayClass)) {
    return make_array({});  // BUILD fills it
  }
  if (is_name(callable, kTypeClass) && !a.empty() && a[0].is_string()) return make_byte_type(a[0]);
  if (is_name(callable, kFromBuffer) && a.size() == 4 && a[0].kind == Kind::kBytes) {
    check_shape(a[2], a[1], a[0].bytes.size());
    return make_array(a[0].bytes);
  }
  if (is_name(callable, kEncode) && a.size() == 2 && a[0].kind == Kind::kText && a[1].is_string() &&
      a[1].text() == "latin1") {
    return make_encoded(a[0].bytes);
  }
  fail("refuses a call of this kind");
}

// The state of an array is (version, shape, dtype, is Fortran, bytes); that of a dtype says nothing new.
void ImagePickle::on_build(const Value& object, const Value& state) {
  const Items* parts = items(state);
  if (is_byte_type(object) && parts != nullptr) return;
  if (!is_array(object) || parts == nullptr || parts->size() != 5 || (*parts)[4].kind != Kind::kBytes) {
    fail("refuses to set the state of anything but an array of bytes");
  }
  check_shape((*parts)[1], (*parts)[2], (*parts)[4].bytes.size());
  arrays_[static_cast<size_t>(object.number)] = (*parts)[4].bytes;
}

PickleValue ImagePickle::make_array(std::span<const uint8_t> bytes) {
  arrays_.push_back(bytes);
  return {.kind = Kind::kObject, .tag = kArray, .number = static_cast<int64_t>(arrays_.size()) - 1};
}

PickleValue ImagePickle::make_byte_type(const Value& code) {
  const std::string_view text = code.text();
  if (text != "u1" && text != "|u1" && text != "b1" && text != "|b1")
    fail("expected elements of one byte (u1 or b1) but got {}", shown(text));
  return {.kind = Kind::kObject, .tag = kByteType};
}

void ImagePickle::check_shape(const Value& shape, const Value& type, size_t bytes) const {
  const Items* extents = items(shape);
  if (!is_byte_type(type) || extents == nullptr || extents->size() != 1 ||
      extents->front().kind != Kind::kNumber || extents->front().number < 0 ||
      static_cast<uint64_t>(extents->front().number) != bytes) {
    fail("expected an array of one axis and one byte an element that fits its {} bytes", bytes);
  }
}

// Bytes that protocol 2 of Python 3 writes as text: each character is one.
PickleValue ImagePickle::make_encoded(std::span<const uint8_t> text) {
  if (text.size() > file().size() - owned_bytes_) fail("expected strings of no more bytes than the file has");
  owned_bytes_ += text.size();
  std::vector<uint8_t> bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] < 0x80) {
      bytes.push_back(text[i]);
    } else if ((text[i] == 0xC2 || text[i] == 0xC3) && i + 1 < text.size() && (text[i + 1] & 0xC0) == 0x80) {
      bytes.push_back(static_cast<uint8_t>((text[i] & 3) << 6 | (text[i + 1] & 0x3F)));
      ++i;
    } else {
      fail("expected characters up to 255 in a string that stands for bytes");
    }
  }
  return {.kind = Kind::kBytes, .bytes = owned_.emplace_back(std::move(bytes))};
}

}  // namespace sinter::nn::data
