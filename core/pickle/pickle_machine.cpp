#include <algorithm>
#include <bit>
#include <cstring>

#include <sinter/core/base/error.h>
#include <sinter/core/pickle/pickle_machine.h>

namespace sinter {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

constexpr size_t kMostValues = size_t{1} << 22;  // pushed in all
constexpr size_t kMostMemo = size_t{1} << 21;    // numbered by the pickle
constexpr size_t kMostMarks = 1024;              // open at once; honest pickles have two or three
constexpr size_t kMostOpaqueNames = 4096;        // honest pickles have some dozens

}  // namespace

// ---- results ----

const PickleMachine::Items* PickleMachine::items(const Value& value) const {
  return value.kind == Kind::kSequence ? &sequences_[static_cast<size_t>(value.number)] : nullptr;
}

const PickleMachine::Entries* PickleMachine::entries(const Value& value) const {
  return value.kind == Kind::kDict ? &dicts_[static_cast<size_t>(value.number)] : nullptr;
}

const std::string& PickleMachine::opaque_name(const Value& value) const {
  return opaque_names_.at(static_cast<size_t>(value.number));
}

PickleMachine::Value PickleMachine::make_sequence(Items items) {
  sequences_.push_back(std::move(items));
  return {.kind = Kind::kSequence, .number = static_cast<int64_t>(sequences_.size()) - 1};
}

PickleMachine::Value PickleMachine::make_dict(Entries entries) {
  dicts_.push_back(std::move(entries));
  return {.kind = Kind::kDict, .number = static_cast<int64_t>(dicts_.size()) - 1};
}

PickleMachine::Value PickleMachine::make_opaque(std::string_view module, std::string_view name) {
  const std::string both = shown(module) + "." + shown(name);
  const auto [place, is_new] = opaque_numbers_.emplace(both, opaque_names_.size());
  if (is_new) opaque_names_.push_back(both);
  if (opaque_names_.size() > kMostOpaqueNames) fail("expected at most {} names", kMostOpaqueNames);
  return {.kind = Kind::kOpaque, .number = static_cast<int64_t>(place->second)};
}

void PickleMachine::charge(size_t values) {
  pushed_ += values;
  if (pushed_ > kMostValues) fail("expected at most {} values", kMostValues);
}

PickleMachine::Value PickleMachine::on_persistent_id(const Value& /*id*/) {
  fail("refuses a persistent id");
}

std::string PickleMachine::shown(std::string_view text) {
  std::string clean;
  for (const char c : text.substr(0, 60)) clean += c >= ' ' && c <= '~' ? c : '?';
  return clean;
}

void PickleMachine::fail_with(const std::string& message) const {
  throw_error<IoError>("{}: byte {}: {}", source_, begin_, message);
}

// ---- the file ----

std::span<const uint8_t> PickleMachine::take(uint64_t count) {
  const size_t left = file_.size() - at_;
  ran_out_ = count > left;
  if (ran_out_) fail("expected {} more bytes but {} are left", count, left);
  const std::span<const uint8_t> bytes = file_.subspan(at_, count);
  at_ += count;
  return bytes;
}

template <class T>
T PickleMachine::number() {
  T value{};
  std::memcpy(&value, take(sizeof value).data(), sizeof value);
  return value;
}

std::string_view PickleMachine::line() {
  const Value rest{.bytes = file_.subspan(at_)};
  const size_t end = rest.text().find('\n');
  ran_out_ = end == std::string_view::npos;
  if (ran_out_) fail("expected a name that ends with its line");
  at_ += end + 1;
  return rest.text().substr(0, end);
}

// ---- the stack and the memo ----

void PickleMachine::push(const Value& value) {
  charge(1);
  stack_.push_back(value);
}

// A string of Python 2 and a long number say their length with a sign.
uint64_t PickleMachine::signed_size() {
  const auto size = number<int32_t>();
  if (size < 0) fail("expected a length but got {}", size);
  return static_cast<uint64_t>(size);
}

void PickleMachine::push_long(uint64_t size) {
  const std::span<const uint8_t> bytes = take(size);
  if (bytes.size() > sizeof(int64_t)) {
    if (opcodes_ == Opcodes::kSequences) fail("expected a number of at most 64 bits");
    return push({.kind = Kind::kFloat});
  }
  const bool negative = !bytes.empty() && (bytes.back() & 0x80) != 0;
  uint64_t value = negative ? ~uint64_t{0} : 0;
  if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
  push_number(static_cast<int64_t>(value));
}

void PickleMachine::mark() {
  if (marks_.size() >= kMostMarks) fail("expected at most {} open marks", kMostMarks);
  marks_.push_back(stack_.size());
}

// Values below the last mark belong to what the mark interrupts.
PickleMachine::Value& PickleMachine::top() {
  if (stack_.size() <= floor()) fail("expected a value on the stack");
  return stack_.back();
}

PickleMachine::Value PickleMachine::pop() {
  const Value value = top();
  stack_.pop_back();
  return value;
}

PickleMachine::Items PickleMachine::pop_many(size_t count) {
  if (stack_.size() - floor() < count) fail("expected {} values on the stack", count);
  Items items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
  stack_.resize(stack_.size() - count);
  return items;
}

PickleMachine::Items PickleMachine::pop_to_mark() {
  if (marks_.empty()) fail("expected a mark on the stack");
  Items items = pop_many(stack_.size() - marks_.back());
  marks_.pop_back();
  return items;
}

void PickleMachine::append(const Items& items) {
  const Value list = top();
  if (list.kind == Kind::kOpaque) return;
  if (list.kind != Kind::kSequence) fail("expected a list to append to");
  Items& target = sequences_[static_cast<size_t>(list.number)];
  target.insert(target.end(), items.begin(), items.end());
}

void PickleMachine::set_items(const Items& items) {
  const Value dict = top();
  if (dict.kind == Kind::kOpaque) return;
  if (dict.kind != Kind::kDict) fail("expected a dict to set items of");
  if (items.size() % 2 != 0) fail("expected a value for each key");
  Entries& target = dicts_[static_cast<size_t>(dict.number)];
  for (size_t i = 0; i < items.size(); i += 2) target.emplace_back(items[i], items[i + 1]);
}

void PickleMachine::add_to_set() {
  pop_to_mark();
  if (top().kind != Kind::kOpaque) fail("expected a set to add to");
}

void PickleMachine::remember(uint64_t index) {
  if (index >= kMostMemo) fail("expected a memo number below {} but got {}", kMostMemo, index);
  if (index >= memo_.size()) memo_.resize(std::max<size_t>(index + 1, std::min(kMostMemo, 2 * memo_.size())));
  if (memo_[index].kind == Kind::kUnset) ++memo_count_;
  memo_[index] = top();
}

void PickleMachine::recall(uint64_t index) {
  if (index >= memo_.size() || memo_[index].kind == Kind::kUnset)
    fail("expected a memo number but {} is none", index);
  push(memo_[index]);
}

// ---- names ----

void PickleMachine::global() {
  const std::string_view module = line();
  push(on_name(module, line()));
}

void PickleMachine::stack_global() {
  const Value name = pop(), module = pop();
  if (!name.is_string() || !module.is_string()) fail("expected a module and a name");
  push(on_name(module.text(), name.text()));
}

void PickleMachine::reduce() {
  const Value arguments = pop();
  const Value callable = pop();
  push(callable.kind == Kind::kOpaque ? callable : on_call(callable, arguments));
}

void PickleMachine::new_object_with_keywords() {
  const Items call = pop_many(3);
  if (call[0].kind != Kind::kOpaque) fail("refuses a call of this kind");
  push(call[0]);
}

void PickleMachine::build() {
  const Value state = pop();
  const Value object = top();
  if (object.kind != Kind::kOpaque) on_build(object, state);
}

// ---- the program ----

PickleMachine::Value PickleMachine::run() {
  while (!stopped_) {
    begin_ = at_;
    step(take(1)[0]);
  }
  return stack_.back();
}

void PickleMachine::stop() {
  top();
  stopped_ = true;
}

void PickleMachine::expect_end() {
  begin_ = at_;
  if (at_ != file_.size())
    fail("expected the end of the file behind STOP but {} bytes follow", file_.size() - at_);
}

void PickleMachine::check_protocol() {
  const int version = number<uint8_t>();
  if (version < 2 || version > 5) fail("expected a pickle of protocol 2 to 5 but got {}", version);
}

void PickleMachine::check_frame() {
  const auto size = number<uint64_t>();
  ran_out_ = size > file_.size() - at_;
  if (ran_out_) fail("promises {} bytes but {} are left", size, file_.size() - at_);
}

// The names of opcodes are pickletools'.
// clang-format off
bool PickleMachine::step_strings(uint8_t opcode) {
  switch (opcode) {
    case 'T': push_bytes(Kind::kBytes, signed_size()); return true;        // BINSTRING
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

bool PickleMachine::step_values(uint8_t opcode) {
  switch (opcode) {
    case 'N': push({.kind = Kind::kNone}); return true;                 // NONE
    case 0x88: push({.kind = Kind::kBool, .number = 1}); return true;   // NEWTRUE
    case 0x89: push({.kind = Kind::kBool}); return true;                // NEWFALSE
    case 'J': push_number(number<int32_t>()); return true;              // BININT
    case 'K': push_number(number<uint8_t>()); return true;              // BININT1
    case 'M': push_number(number<uint16_t>()); return true;             // BININT2
    case 0x8a: push_long(number<uint8_t>()); return true;               // LONG1
    case ']':                                                           // EMPTY_LIST
    case ')': push(make_sequence({})); return true;                     // EMPTY_TUPLE
    case 'l':                                                           // LIST
    case 't': push(make_sequence(pop_to_mark())); return true;          // TUPLE
    case 0x85: push(make_sequence(pop_many(1))); return true;           // TUPLE1
    case 0x86: push(make_sequence(pop_many(2))); return true;           // TUPLE2
    case 0x87: push(make_sequence(pop_many(3))); return true;           // TUPLE3
    case 'a': append({pop()}); return true;                             // APPEND
    case 'e': append(pop_to_mark()); return true;                       // APPENDS
    default: return false;
  }
}

bool PickleMachine::step_objects(uint8_t opcode) {
  if (opcodes_ != Opcodes::kObjects) return false;
  switch (opcode) {
    case '}': push(make_dict({})); return true;                             // EMPTY_DICT
    case 's': set_items(pop_many(2)); return true;                          // SETITEM
    case 'u': set_items(pop_to_mark()); return true;                        // SETITEMS
    case 'Q': push(on_persistent_id(pop())); return true;                   // BINPERSID
    case 'G': take(8); push({.kind = Kind::kFloat}); return true;           // BINFLOAT
    case 0x8b: push_long(signed_size()); return true;                       // LONG4
    case 0x81: reduce(); return true;                                       // NEWOBJ
    case 0x92: new_object_with_keywords(); return true;                     // NEWOBJ_EX
    case 0x8f: push(make_opaque("builtins", "set")); return true;           // EMPTY_SET
    case 0x90: add_to_set(); return true;                                   // ADDITEMS
    case 0x91: pop_to_mark(); push(make_opaque("builtins", "frozenset")); return true;  // FROZENSET
    default: return false;
  }
}

void PickleMachine::step(uint8_t opcode) {
  if (step_strings(opcode) || step_values(opcode) || step_objects(opcode)) return;
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

}  // namespace sinter
