// A machine for Python's pickles. A pickle is a program for a stack machine which in Python may call whatever
// it names. This one knows the opcodes that build numbers, strings, lists, tuples and, if asked to, dicts and
// objects; it calls nothing. What names mean a class derived from it says, a short list each. Source:
// CPython, Lib/pickletools.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace sinter {

/// A value that a pickle builds: small, and without values of its own, so that what refers to itself, however
/// deep, is nothing special.
struct PickleValue {
  enum class Kind : uint8_t {
    kUnset,
    kNone,
    kBool,      ///< `number`: 0 or 1
    kNumber,    ///< `number`
    kFloat,     ///< a float or an integer beyond 64 bits, whose value nobody asks for
    kBytes,     ///< `bytes`: bytes, bytearray, or a string of Python 2
    kText,      ///< `bytes` in UTF-8
    kSequence,  ///< a list or a tuple: PickleMachine::items()
    kDict,      ///< PickleMachine::entries()
    kName,      ///< a name that the derived class knows; the other members are its own
    kObject,    ///< what it makes of calls; likewise
    kOpaque,    ///< of a name that it does not know, or made by it: PickleMachine::opaque_name()
  };
  Kind kind = Kind::kUnset;
  uint8_t tag = 0;
  int64_t number = 0;
  std::span<const uint8_t> bytes = {};

  bool is_string() const { return kind == Kind::kBytes || kind == Kind::kText; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
};

/// Runs one pickle of protocol 2 to 5 that begins at a place in `file`; bytes behind its end are not looked
/// at. At most 4,194,304 values may be pushed, which keeps memory below 512 MB. Strings are views of `file`.
/// Throws IoError "<source>: byte <of the file>: ..." for damage, and for every opcode that it does not know.
class PickleMachine {
 public:
  using Value = PickleValue;
  using Kind = PickleValue::Kind;
  using Items = std::vector<Value>;
  using Entries = std::vector<std::pair<Value, Value>>;

  /// kSequences: numbers, strings, lists, tuples and calls. kObjects: dicts, sets, floats, instances and
  /// persistent ids too.
  enum class Opcodes { kSequences, kObjects };

  PickleMachine(std::span<const uint8_t> file, size_t begin, std::string source, Opcodes opcodes)
      : file_(file), source_(std::move(source)), opcodes_(opcodes), at_(begin), begin_(begin) {}
  PickleMachine(const PickleMachine&) = delete;
  PickleMachine& operator=(const PickleMachine&) = delete;
  virtual ~PickleMachine() = default;

  /// The value at its end.
  Value run();
  /// The byte behind its end.
  size_t position() const { return at_; }
  /// Whether it failed because `file` ended.
  bool ran_out() const { return ran_out_; }
  /// Throws IoError unless `file` ends with it.
  void expect_end();

  /// The items of a list or tuple, the entries of a dict in the order in which they were set (the last of
  /// equal keys counts); null for other values.
  const Items* items(const Value& value) const;
  const Entries* entries(const Value& value) const;
  /// "module.name", printable and of bounded length.
  const std::string& opaque_name(const Value& value) const;

 protected:
  /// What a name means.
  virtual Value on_name(std::string_view module, std::string_view name) = 0;
  /// What a call of anything but an opaque value gives. A call of an opaque value is that value.
  virtual Value on_call(const Value& callable, const Value& arguments) = 0;
  /// Takes the state of anything but an opaque value.
  virtual void on_build(const Value& object, const Value& state) = 0;
  /// What a persistent id stands for; with Opcodes::kObjects.
  virtual Value on_persistent_id(const Value& id);

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(fmt::vformat(format, fmt::make_format_args(args...)));
  }
  /// Text of the file for a message.
  static std::string shown(std::string_view text);

  std::span<const uint8_t> file() const { return file_; }
  Value make_sequence(Items items);
  Value make_dict(Entries entries);
  Value make_opaque(std::string_view module, std::string_view name);
  /// Counts values that were made without being pushed.
  void charge(size_t values);

 private:
  [[noreturn]] void fail_with(const std::string& message) const;
  std::span<const uint8_t> take(uint64_t count);
  template <class T>
  T number();
  std::string_view line();

  void push(const Value& value);
  void push_number(int64_t value) { push({.kind = Kind::kNumber, .number = value}); }
  void push_bytes(Kind kind, uint64_t size) { push({.kind = kind, .bytes = take(size)}); }
  uint64_t signed_size();
  void push_long(uint64_t size);
  void mark();
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Value& top();
  Value pop();
  Items pop_many(size_t count);
  Items pop_to_mark();
  void append(const Items& items);
  void set_items(const Items& items);
  void add_to_set();
  void remember(uint64_t index);
  void recall(uint64_t index);
  void global();
  void stack_global();
  void reduce();
  void new_object_with_keywords();
  void build();
  void stop();
  void check_protocol();
  void check_frame();
  void step(uint8_t opcode);
  bool step_strings(uint8_t opcode);
  bool step_values(uint8_t opcode);
  bool step_objects(uint8_t opcode);

  std::span<const uint8_t> file_;
  std::string source_;
  Opcodes opcodes_;
  size_t at_;
  size_t begin_;  // of the opcode at work, for messages
  bool stopped_ = false;
  bool ran_out_ = false;
  size_t pushed_ = 0;
  Items stack_;
  std::vector<size_t> marks_;
  Items memo_;
  uint64_t memo_count_ = 0;
  std::deque<Items> sequences_;
  std::deque<Entries> dicts_;
  std::vector<std::string> opaque_names_;
  std::map<std::string, size_t> opaque_numbers_;
};

}  // namespace sinter
