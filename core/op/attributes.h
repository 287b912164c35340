// Attributes: the options of an op call that are fixed when it is made, such as a convolution's stride. Each
// op declares one plain struct; comparing, printing, hashing and changing one field derive from its list of
// fields.
//
//   struct PoolAttributes {
//     std::array<int64_t, 2> kernel{2, 2};
//     Layout layout = Layout::kNCHW;
//     bool operator==(const PoolAttributes&) const = default;
//     template <class Self = PoolAttributes>
//     static constexpr auto fields() {
//       return std::tuple(field("kernel", &Self::kernel), field("layout", &Self::layout));
//     }
//   };
//
// As a template the list costs nothing where it is not asked for: programs include many and use none.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include <sinter/core/base/dtype.h>
#include <sinter/core/base/error.h>
#include <sinter/core/base/layout.h>
#include <sinter/core/base/shape.h>

namespace sinter {

/// One named member of an attributes struct.
template <class Struct, class Value>
struct AttributeField {
  const char* name;
  Value Struct::*member;
};

template <class Struct, class Value>
constexpr AttributeField<Struct, Value> field(const char* name, Value Struct::*member) {
  return {name, member};
}

template <class T>
concept AttributesStruct = std::equality_comparable<T> && std::copy_constructible<T> && requires {
  T::fields();
};

namespace detail {

// The text of single values is made in attributes.cpp, so that files which use attributes need not compile
// it.
std::string number_text(int64_t value);
std::string number_text(uint64_t value);
std::string number_text(float value);
std::string number_text(double value);
std::string attribute_text(bool value);
std::string attribute_text(const std::string& value);
std::string list_text(std::span<const int64_t> values);
std::string braced(const std::string& text);
/// Appends "name=value" to a list of fields.
void append_field(std::string& text, const char* name, const std::string& value);
[[noreturn]] void fail_attributes_type(const char* asked, const char* held);

template <class T>
requires std::is_arithmetic_v<T> std::string attribute_text(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return number_text(value);
  } else if constexpr (std::is_signed_v<T>) {
    return number_text(static_cast<int64_t>(value));
  } else {
    return number_text(static_cast<uint64_t>(value));
  }
}
template <class T>
requires requires(const T& value) {
  std::string(to_string(value));
}
std::string attribute_text(const T& value) {
  return std::string(to_string(value));
}
template <class T>
std::string attribute_text(const std::optional<T>& value);
/// A struct within a struct: "{kernel=[2, 2], layout=NCHW}".
template <class T>
requires requires {
  T::fields();
}
std::string attribute_text(const T& value);
template <class Range>
requires requires(const Range& range) {
  range.begin();
} &&(!requires(const Range& range) { to_string(range); })std::string attribute_text(const Range& range) {
  if constexpr (requires { std::span<const int64_t>(range); }) {
    return list_text(range);
  } else {
    std::string text = "[";
    for (const auto& value : range) {
      if (text.size() > 1) text += ", ";
      text += attribute_text(value);
    }
    text += "]";
    return text;
  }
}
template <class T>
std::string attribute_text(const std::optional<T>& value) {
  return value ? attribute_text(*value) : "none";
}

/// Equal values have equal hashes, 0.0 and -0.0 too.
template <class T>
size_t attribute_hash(const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::hash<T>()(value == T{0} ? T{0} : value);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>) {
    return std::hash<T>()(value);
  } else if constexpr (requires { *value, value.has_value(); }) {
    return value.has_value() ? attribute_hash(*value) + 1 : 0;
  } else if constexpr (requires { T::fields(); }) {
    size_t hash = 0;
    std::apply(
        [&](const auto&... fields) {
          ((hash = hash * 0x100000001B3u + attribute_hash(value.*(fields.member))), ...);
        },
        T::fields());
    return hash;
  } else if constexpr (requires { value.begin(), value.end(); }) {
    size_t hash = 0;
    for (const auto& each : value) hash = hash * 0x100000001B3u + attribute_hash(each);
    return hash;
  } else {
    return std::hash<std::string>()(attribute_text(value));
  }
}

}  // namespace detail

/// "kernel=[2, 2], layout=NCHW".
template <AttributesStruct T>
std::string to_string(const T& attributes) {
  std::string text;
  std::apply(
      [&](const auto&... fields) {
        (detail::append_field(text, fields.name, detail::attribute_text(attributes.*(fields.member))), ...);
      },
      T::fields());
  return text;
}

namespace detail {

template <class T>
requires requires {
  T::fields();
}
std::string attribute_text(const T& value) {
  return braced(to_string(value));
}

}  // namespace detail

/// Any attributes struct, by value. Default-constructed: none, for ops without attributes.
class Attributes {
 public:
  Attributes() = default;
  template <class T>
  requires(!std::same_as<T, Attributes> && AttributesStruct<T>) Attributes(T value)
      : held_(std::make_shared<const Held<T>>(std::move(value))) {}

  /// The struct; throws InternalError if another type is held.
  template <AttributesStruct T>
  const T& as() const {
    if (held_ == nullptr || held_->type() != typeid(T)) [[unlikely]]
      fail_type(typeid(T).name());
    return static_cast<const Held<T>*>(held_.get())->value;
  }

  bool empty() const { return held_ == nullptr; }

  /// The value of one field by its name; nullptr if there is no such field or if it is of another type.
  template <class Value>
  const Value* find(std::string_view name) const {
    return held_ == nullptr ? nullptr : static_cast<const Value*>(held_->find(name, typeid(Value)));
  }
  /// The same attributes with one field changed: `attributes.with("layout", Layout::kNHWC)`. Throws
  /// InvalidArgument if there is no such field or if it is of another type.
  template <class Value>
  Attributes with(std::string_view name, const Value& value) const {
    if (find<Value>(name) == nullptr) fail_field(name, typeid(Value).name());
    Attributes changed;
    changed.held_ = held_->with(name, &value);
    return changed;
  }

  bool operator==(const Attributes& other) const {
    if (held_ == nullptr || other.held_ == nullptr) return held_ == other.held_;
    return held_->equals(*other.held_);
  }

  friend std::string to_string(const Attributes& attributes) {
    return attributes.held_ ? attributes.held_->text() : std::string();
  }
  /// Equal attributes have equal hashes.
  size_t hash() const { return held_ == nullptr ? 0 : held_->hash(); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual const std::type_info& type() const = 0;
    virtual bool equals(const Base& other) const = 0;
    virtual std::string text() const = 0;
    virtual size_t hash() const = 0;
    virtual const void* find(std::string_view name, const std::type_info& value_type) const = 0;
    /// `value` points to one of the field's type.
    virtual std::shared_ptr<const Base> with(std::string_view name, const void* value) const = 0;
  };
  template <class T>
  struct Held final : Base {
    explicit Held(T v) : value(std::move(v)) {}
    const std::type_info& type() const override { return typeid(T); }
    bool equals(const Base& other) const override {
      return other.type() == typeid(T) && static_cast<const Held&>(other).value == value;
    }
    std::string text() const override { return to_string(value); }
    size_t hash() const override { return detail::attribute_hash(value); }
    const void* find(std::string_view name, const std::type_info& value_type) const override {
      const void* found = nullptr;
      for_each_field([&]<class Struct, class Value>(const AttributeField<Struct, Value>& field) {
        if (field.name == name && typeid(Value) == value_type) found = &(value.*(field.member));
      });
      return found;
    }
    std::shared_ptr<const Base> with(std::string_view name, const void* changed) const override {
      auto copy = std::make_shared<Held>(value);
      for_each_field([&]<class Struct, class Value>(const AttributeField<Struct, Value>& field) {
        if (field.name == name) copy->value.*(field.member) = *static_cast<const Value*>(changed);
      });
      return copy;
    }
    template <class F>
    static void for_each_field(const F& function) {
      std::apply([&](const auto&... fields) { (function(fields), ...); }, T::fields());
    }
    T value;
  };
  [[noreturn]] void fail_field(std::string_view name, const char* type) const {
    throw_error<InvalidArgument>("[attributes] there is no field '{}' of type {} in ({})", name, type,
                                 to_string(*this));
  }
  [[noreturn]] void fail_type(const char* asked) const {
    detail::fail_attributes_type(asked, held_ ? held_->type().name() : "nothing");
  }

  std::shared_ptr<const Base> held_;
};

}  // namespace sinter
