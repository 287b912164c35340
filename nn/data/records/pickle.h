// The little of Python's pickle that lists of byte strings need. A pickle is a program for a stack machine
// which in Python may call whatever it names; this one knows the opcodes that build numbers, strings, lists
// and tuples, and five names, for which it does the obvious itself. It calls nothing, and refuses every other
// opcode and name. Sources: CPython, Lib/pickletools.py; NumPy, ndarray.__reduce__ and dtype.__reduce__.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sinter::nn::data {

/// A value that a pickle builds: small, and without values of its own, so that what refers to itself, however
/// deep, is nothing special.
struct PickleValue {
  enum class Kind : uint8_t {
    kUnset,
    kNone,
    kNumber,    ///< `number`; booleans are 0 and 1
    kBytes,     ///< `bytes`: bytes, bytearray, or a string of Python 2
    kText,      ///< `bytes` in UTF-8
    kSequence,  ///< `number` is its index in Pickle::sequences: a list or a tuple
    kArray,     ///< `number` is its index in Pickle::arrays: a numpy array, filled later
    kByteType,  ///< numpy's dtype uint8 or bool
    kArrayClass,
    kTypeClass,
    kReconstruct,
    kFromBuffer,
    kEncode,
  };
  Kind kind = Kind::kUnset;
  int64_t number = 0;
  std::span<const uint8_t> bytes = {};
};

/// What a pickle built. Bytes are views of the file's, or of `owned`.
struct Pickle {
  PickleValue top;
  std::deque<std::vector<PickleValue>> sequences;
  std::deque<std::span<const uint8_t>> arrays;  ///< of one axis, one byte an element
  std::deque<std::vector<uint8_t>> owned;       ///< bytes that the file holds as text

  /// The items of a list or tuple; null for other values.
  const std::vector<PickleValue>* items(const PickleValue& value) const;
};

/// Runs a pickle of protocol 2 to 5. At most 4,194,304 values may be pushed, which keeps memory below 512 MB,
/// and strings that are not views take no more bytes than the file has. `name` is the file's, for messages.
/// Throws IoError with the byte for damage, and for everything that this machine does not know.
Pickle parse_pickle(std::span<const uint8_t> bytes, const std::string& name);

}  // namespace sinter::nn::data
