// What the names in PyTorch's pickles mean: dicts, tensors and their storages. Nothing is called, and nothing
// is looked at beyond what tensors are made of: values of all other names are opaque, and do no harm beside
// weights. Sources: PyTorch, torch/_utils.py, torch/_tensor.py, torch/serialization.py.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/core/base/dtype.h>
#include <sinter/core/base/shape.h>
#include <sinter/core/pickle/pickle_machine.h>

namespace sinter::nn::pytorch {

/// What a storage holds: "FloatStorage" and so on.
struct StorageType {
  std::string_view name;
  size_t element_bytes = 0;
  std::optional<DType> dtype;  ///< none if no Tensor has it
};

/// The most digits of a storage's key.
inline constexpr size_t kMostKeyDigits = 20;

/// An array that a pickle refers to, and that the file holds elsewhere.
struct PickledStorage {
  const StorageType* type = nullptr;  ///< null for one that is not known
  std::string type_name;
  uint64_t elements = 0;
};
using Storages = std::map<std::string, PickledStorage, std::less<>>;  // by key: 1 to 20 digits

/// A tensor as a view of a storage, checked: all its elements lie in it, and they are no more than it has.
struct PickledView {
  Storages::const_iterator storage;
  Shape shape;
  std::array<int64_t, kMaxRank> strides{};  ///< in elements
  int64_t offset = 0;                       ///< in elements

  DType dtype() const { return *storage->second.type->dtype; }
  /// Whether elements lie as in a Tensor.
  bool is_row_major() const;
};

class PytorchPickle final : public PickleMachine {
 public:
  /// Runs the pickle that begins at byte `begin` of `file`; `source` stands before messages.
  PytorchPickle(std::span<const uint8_t> file, size_t begin, const std::string& source)
      : PickleMachine(file, begin, source, Opcodes::kObjects) {}

  const Storages& storages() const { return storages_; }

  static bool is_tensor(const Value& value);
  /// The view that a tensor is. Throws Unsupported or IoError that ends with what is wrong; `what` is how the
  /// message begins: '[pytorch] a.pth: tensor "w"'.
  PickledView view_of(const Value& tensor, const std::string& what) const;
  /// "a tensor", "a dict", "a number" and so on, for messages.
  std::string describe(const Value& value) const;

 private:
  Value on_name(std::string_view module, std::string_view name) override;
  Value on_call(const Value& callable, const Value& arguments) override;
  void on_build(const Value& object, const Value& state) override;
  Value on_persistent_id(const Value& id) override;

  Value make_ordered_dict(const Items& arguments);
  Value make_from_type(const Items& arguments);
  Value make_storage(const Items& id);
  static void lay_out(const Value& offset, const Items& extents, const Items& strides,
                      const std::string& what, PickledView& view);

  Storages storages_;
  std::vector<Storages::const_iterator> numbered_;
};

/// The type of a storage by its name in the module torch; null if there is none.
const StorageType* find_storage_type(std::string_view name);

}  // namespace sinter::nn::pytorch
