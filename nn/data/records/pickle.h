// Pickles of encoded images: lists of byte strings and of numpy arrays of bytes. Of names it knows five, for
// which it does the obvious itself; everything else is refused. Sources: NumPy, ndarray.__reduce__ and
// dtype.__reduce__; CPython, Lib/pickle.py for bytes in protocol 2.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/core/pickle/pickle_machine.h>

namespace sinter::nn::data {

/// Runs a pickle of protocol 2 to 5 that is the whole file. Strings that are not views of it take no more
/// bytes than it has. `name` is the file's, for messages. Throws IoError with the byte for damage, and for
/// everything that is not known here.
class ImagePickle final : public PickleMachine {
 public:
  ImagePickle(std::span<const uint8_t> file, const std::string& name)
      : PickleMachine(file, 0, "[pickle] " + name, Opcodes::kSequences), top_(run()) {
    expect_end();
  }

  const Value& top() const { return top_; }
  /// The bytes of a byte string, or of an array of one axis and one byte an element; empty for other values.
  std::span<const uint8_t> bytes_of(const Value& value) const;
  bool is_array(const Value& value) const;
  /// The bytes that the file holds as text; empty thereafter. Views of them stay valid.
  std::vector<std::vector<uint8_t>> take_owned();

 private:
  Value on_name(std::string_view module, std::string_view name) override;
  Value on_call(const Value& callable, const Value& arguments) override;
  void on_build(const Value& object, const Value& state) override;

  Value make_array(std::span<const uint8_t> bytes);
  Value make_byte_type(const Value& code);
  Value make_encoded(std::span<const uint8_t> text);
  void check_shape(const Value& shape, const Value& type, size_t bytes) const;

  std::deque<std::span<const uint8_t>> arrays_;
  std::deque<std::vector<uint8_t>> owned_;
  uint64_t owned_bytes_ = 0;
  Value top_;  // behind the others: made by run()
};

}  // namespace sinter::nn::data
