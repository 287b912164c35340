#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/records/pickle.h>

namespace sinter::nn::data {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

using Kind = PickleValue::Kind;
using Bytes = std::span<const uint8_t>;

constexpr size_t kMostValues = size_t{1} << 22;  // pushed in all
constexpr size_t kMostMemo = size_t{1} << 21;    // numbered by the pickle
constexpr size_t kMostMarks = 1024;              // open at once; honest pickles have two or three

std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string shown(std::string_view text) {
  std::string clean;
  for (const char c : text.substr(0, 60)) clean += c >= ' ' && c <= '~' ? c : '?';
  return clean;
}

class Machine {
 public:
  Machine(Bytes file, const std::string& name) : file_(file), name_(name) {}

  Pickle run() {
    while (!stopped_) {
      begin_ = at_;
      step(take(1)[0]);
    }
    if (at_ != file_.size()) {
      begin_ = at_;
      fail("expected the end of the file behind STOP but {} bytes follow", file_.size() - at_);
    }
    return std::move(result_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw_error<IoError>("[pickle] {}: byte {}: {}", name_, begin_,
                         fmt::vformat(format, fmt::make_format_args(args...)));
  }

  // ---- the file ----

  Bytes take(uint64_t count) {
    if (count > file_.size() - at_) fail("expected {} more bytes but {} are left", count, file_.size() - at_);
    const Bytes bytes = file_.subspan(at_, count);
    at_ += count;
    return bytes;
  }
  template <class T>
  T number() {
    T value{};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view line() {
    const std::string_view rest = as_text(file_.subspan(at_));
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) fail("expected a name that ends with its line");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  // ---- the stack and the memo ----

  void push(PickleValue value) {
    if (++pushed_ > kMostValues) fail("expected at most {} values", kMostValues);
    stack_.push_back(value);
  }
  void push_number(int64_t value) { push({.kind = Kind::kNumber, .number = value}); }
  void push_bytes(Kind kind, uint64_t size) { push({.kind = kind, .bytes = take(size)}); }
  // A python 2 string or a number says its length with a sign.
  void push_signed_bytes(int32_t size) {
    if (size < 0) fail("expected a length but got {}", size);
    push_bytes(Kind::kBytes, static_cast<uint64_t>(size));
  }
  void push_sequence(std::vector<PickleValue> items) {
    push({.kind = Kind::kSequence, .number = static_cast<int64_t>(result_.sequences.size())});
    result_.sequences.push_back(std::move(items));
  }
  void mark() {
    if (marks_.size() >= kMostMarks) fail("expected at most {} open marks", kMostMarks);
    marks_.push_back(stack_.size());
  }
  // How deep the stack is at the last mark: values below belong to what the mark interrupts.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleValue& top() {
    if (stack_.size() <= floor()) fail("expected a value on the stack");
    return stack_.back();
  }
  PickleValue pop() {
    const PickleValue value = top();
    stack_.pop_back();
    return value;
  }
  std::vector<PickleValue> pop_many(size_t count) {
    if (stack_.size() - floor() < count) fail("expected {} values on the stack", count);
    std::vector<PickleValue> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  std::vector<PickleValue> pop_to_mark() {
    if (marks_.empty()) fail("expected a mark on the stack");
    std::vector<PickleValue> items = pop_many(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }
  void append(const std::vector<PickleValue>& items) {
    const PickleValue list = top();
    if (list.kind != Kind::kSequence) fail("expected a list to append to");
    auto& target = result_.sequences[static_cast<size_t>(list.number)];
    target.insert(target.end(), items.begin(), items.end());
  }
  void remember(uint64_t index) {
    if (index >= kMostMemo) fail("expected a memo number below {} but got {}", kMostMemo, index);
    if (index >= memo_.size())
      memo_.resize(std::max<size_t>(index + 1, std::min(kMostMemo, 2 * memo_.size())));
    if (memo_[index].kind == Kind::kUnset) ++memo_count_;
    memo_[index] = top();
  }
  void recall(uint64_t index) {
    if (index >= memo_.size() || memo_[index].kind == Kind::kUnset)
      fail("expected a memo number but {} is none", index);
    push(memo_[index]);
  }

  // ---- the names it knows ----

  void push_global(std::string_view module, std::string_view name) {
    static constexpr struct {
      std::string_view module, name;
      Kind kind;
    } kKnown[] = {{"numpy.core.multiarray", "_reconstruct", Kind::kReconstruct},
                  {"numpy._core.multiarray", "_reconstruct", Kind::kReconstruct},
                  {"numpy.core.numeric", "_frombuffer", Kind::kFromBuffer},
                  {"numpy._core.numeric", "_frombuffer", Kind::kFromBuffer},
                  {"numpy", "ndarray", Kind::kArrayClass},
                  {"numpy", "dtype", Kind::kTypeClass},
                  {"_codecs", "encode", Kind::kEncode}};
    for (const auto& known : kKnown) {
      if (known.module == module && known.name == name) return push({.kind = known.kind});
    }
    fail("refuses the name {}.{}: only arrays of bytes are known here", shown(module), shown(name));
  }

  static bool is_string(const PickleValue& value) {
    return value.kind == Kind::kBytes || value.kind == Kind::kText;
  }

  // Calls nothing: what the known names make is made here.
  void reduce() {
    const PickleValue arguments = pop();
    const PickleValue callable = pop();
    const auto* items = result_.items(arguments);
    if (items == nullptr) fail("expected a tuple of arguments");
    const std::vector<PickleValue>& a = *items;
    if (callable.kind == Kind::kReconstruct && a.size() == 3 && a[0].kind == Kind::kArrayClass) {
      return push_array({});  // BUILD fills it
    }
    if (callable.kind == Kind::kTypeClass && !a.empty() && is_string(a[0])) {
      const std::string_view code = as_text(a[0].bytes);
      if (code != "u1" && code != "|u1" && code != "b1" && code != "|b1")
        fail("expected elements of one byte (u1 or b1) but got {}", shown(code));
      return push({.kind = Kind::kByteType});
    }
    if (callable.kind == Kind::kFromBuffer && a.size() == 4 && a[0].kind == Kind::kBytes) {
      check_shape(a[2], a[1], a[0].bytes.size());
      return push_array(a[0].bytes);
    }
    if (callable.kind == Kind::kEncode && a.size() == 2 && a[0].kind == Kind::kText && is_string(a[1]) &&
        as_text(a[1].bytes) == "latin1") {
      return push_encoded(a[0].bytes);
    }
    fail("refuses a call of this kind");
  }

  void push_array(Bytes bytes) {
    push({.kind = Kind::kArray, .number = static_cast<int64_t>(result_.arrays.size())});
    result_.arrays.push_back(bytes);
  }

  void check_shape(const PickleValue& shape, const PickleValue& type, size_t bytes) const {
    const auto* extents = result_.items(shape);
    if (type.kind != Kind::kByteType || extents == nullptr || extents->size() != 1 ||
        extents->front().kind != Kind::kNumber || extents->front().number < 0 ||
        static_cast<uint64_t>(extents->front().number) != bytes) {
      fail("expected an array of one axis and one byte an element that fits its {} bytes", bytes);
    }
  }

  // Bytes that protocol 2 of Python 3 writes as text: each character is one.
  void push_encoded(Bytes text) {
    if (text.size() > file_.size() - owned_) fail("expected strings of no more bytes than the file has");
    owned_ += text.size();
    std::vector<uint8_t> bytes;
    bytes.reserve(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] < 0x80) {
        bytes.push_back(text[i]);
      } else if ((text[i] == 0xC2 || text[i] == 0xC3) && i + 1 < text.size() &&
                 (text[i + 1] & 0xC0) == 0x80) {
        bytes.push_back(static_cast<uint8_t>((text[i] & 3) << 6 | (text[i + 1] & 0x3F)));
        ++i;
      } else {
        fail("expected characters up to 255 in a string that stands for bytes");
      }
    }
    push({.kind = Kind::kBytes, .bytes = result_.owned.emplace_back(std::move(bytes))});
  }

  // The state of an array is (version, shape, dtype, is Fortran, bytes); that of a dtype says nothing new.
  void build() {
    const PickleValue state = pop();
    const PickleValue object = top();
    const auto* items = result_.items(state);
    if (object.kind == Kind::kByteType && items != nullptr) return;
    if (object.kind != Kind::kArray || items == nullptr || items->size() != 5 ||
        (*items)[4].kind != Kind::kBytes) {
      fail("refuses to set the state of anything but an array of bytes");
    }
    check_shape((*items)[1], (*items)[2], (*items)[4].bytes.size());
    result_.arrays[static_cast<size_t>(object.number)] = (*items)[4].bytes;
  }

  void push_long() {
    const Bytes bytes = take(number<uint8_t>());
    if (bytes.size() > sizeof(int64_t)) fail("expected a number of at most 64 bits");
    const bool negative = !bytes.empty() && (bytes.back() & 0x80) != 0;
    uint64_t value = negative ? ~uint64_t{0} : 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    push_number(static_cast<int64_t>(value));
  }

  void global() {
    const std::string_view module = line();
    push_global(module, line());
  }
  void stack_global() {
    const PickleValue name = pop(), module = pop();
    if (!is_string(name) || !is_string(module)) fail("expected a module and a name");
    push_global(as_text(module.bytes), as_text(name.bytes));
  }

  void stop() {
    result_.top = pop();
    stopped_ = true;
  }

  void check_protocol() {
    const int version = number<uint8_t>();
    if (version < 2 || version > 5) fail("expected a pickle of protocol 2 to 5 but got {}", version);
  }
  void check_frame() {
    const auto size = number<uint64_t>();
    if (size > file_.size() - at_) fail("promises {} bytes but {} are left", size, file_.size() - at_);
  }

  void step(uint8_t opcode);
  bool step_strings(uint8_t opcode);
  bool step_values(uint8_t opcode);

  Bytes file_;
  const std::string& name_;
  uint64_t at_ = 0;
  uint64_t begin_ = 0;  // of the opcode at work, for messages
  bool stopped_ = false;
  size_t pushed_ = 0;
  uint64_t owned_ = 0;
  Pickle result_;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_;
  std::vector<PickleValue> memo_;
  uint64_t memo_count_ = 0;
};

// The names of opcodes are pickletools'.
// clang-format off
bool Machine::step_strings(uint8_t opcode) {
  switch (opcode) {
    case 'T': push_signed_bytes(number<int32_t>()); return true;           // BINSTRING
    case 'U': push_bytes(Kind::kBytes, number<uint8_t>()); return true;    // SHORT_BINSTRING
    case 'B': push_bytes(Kind::kBytes, number<uint32_t>()); return true;   // BINBYTES
    case 'C': push_bytes(Kind::kBytes, number<uint8_t>()); return true;    // SHORT_BINBYTES
    case 0x8e: push_bytes(Kind::kBytes, number<uint64_t>()); return true;  // BINBYTES8
    case 0x96: push_bytes(Kind::kBytes, number<uint64_t>()); return true;  // BYTEARRAY8
    case 'X': push_bytes(Kind::kText, number<uint32_t>()); return true;    // BINUNICODE
    case 0x8c: push_bytes(Kind::kText, number<uint8_t>()); return true;    // SHORT_BINUNICODE
    case 0x8d: push_bytes(Kind::kText, number<uint64_t>()); return true;   // BINUNICODE8
    default: return false;
  }
}

bool Machine::step_values(uint8_t opcode) {
  switch (opcode) {
    case 'N': push({.kind = Kind::kNone}); return true;     // NONE
    case 0x88: push_number(1); return true;                 // NEWTRUE
    case 0x89: push_number(0); return true;                 // NEWFALSE
    case 'J': push_number(number<int32_t>()); return true;  // BININT
    case 'K': push_number(number<uint8_t>()); return true;  // BININT1
    case 'M': push_number(number<uint16_t>()); return true; // BININT2
    case 0x8a: push_long(); return true;                    // LONG1
    case ']':                                               // EMPTY_LIST
    case ')': push_sequence({}); return true;               // EMPTY_TUPLE
    case 'l':                                               // LIST
    case 't': push_sequence(pop_to_mark()); return true;    // TUPLE
    case 0x85: push_sequence(pop_many(1)); return true;     // TUPLE1
    case 0x86: push_sequence(pop_many(2)); return true;     // TUPLE2
    case 0x87: push_sequence(pop_many(3)); return true;     // TUPLE3
    case 'a': append({pop()}); return true;                 // APPEND
    case 'e': append(pop_to_mark()); return true;           // APPENDS
    default: return false;
  }
}

void Machine::step(uint8_t opcode) {
  if (step_strings(opcode) || step_values(opcode)) return;
  switch (opcode) {
    case 0x80: return check_protocol();              // PROTO
    case 0x95: return check_frame();                 // FRAME
    case '(': return mark();                         // MARK
    case 'q': return remember(number<uint8_t>());    // BINPUT
    case 'r': return remember(number<uint32_t>());   // LONG_BINPUT
    case 0x94: return remember(memo_count_);         // MEMOIZE
    case 'h': return recall(number<uint8_t>());      // BINGET
    case 'j': return recall(number<uint32_t>());     // LONG_BINGET
    case 'c': return global();                       // GLOBAL
    case 0x93: return stack_global();                // STACK_GLOBAL
    case 'R': return reduce();                       // REDUCE
    case 'b': return build();                        // BUILD
    case '.': return stop();                         // STOP
    default: fail("refuses the opcode 0x{:02x}", opcode);
  }
}
// clang-format on

}  // namespace

const std::vector<PickleValue>* Pickle::items(const PickleValue& value) const {
  return value.kind == PickleValue::Kind::kSequence ? &sequences[static_cast<size_t>(value.number)] : nullptr;
}

Pickle parse_pickle(std::span<const uint8_t> bytes, const std::string& name) {
  return Machine(bytes, name).run();
}

}  // namespace sinter::nn::data
