// Attributes: the compile-time options of an op call, such as a convolution's stride. Each op declares one
// plain struct; comparing, printing and hashing derive from its list of fields.
//
//   struct PoolAttributes {
//     std::array<int64_t, 2> kernel{2, 2};
//     Layout layout = Layout::kNCHW;
//     bool operator==(const PoolAttributes&) const = default;
//     static constexpr auto fields() {
//       return std::tuple(field("kernel", &PoolAttributes::kernel), field("layout",
//       &PoolAttributes::layout));
//     }
//   };
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <typeinfo>
#include <vector>

#include <sinter/core/base/dtype.h>
#include <sinter/core/base/error.h>
#include <sinter/core/base/shape.h>

namespace sinter {

/// Order of the axes of image tensors. It belongs to the op that reads them, never to the tensor.
/// Filters follow: (out, in/groups, height, width) with kNCHW, (out, height, width, in/groups) with kNHWC.
enum class Layout : uint8_t { kNCHW, kNHWC };

constexpr std::string_view to_string(Layout layout) {
  return layout == Layout::kNCHW ? "NCHW" : "NHWC";
}

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

inline std::string attribute_text(bool value) {
  return value ? "true" : "false";
}
inline std::string attribute_text(const std::string& value) {
  return "\"" + value + "\"";
}
template <class T>
requires std::is_arithmetic_v<T> std::string attribute_text(T value) {
  return fmt::format("{}", value);
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
  std::string text = "[";
  for (const auto& value : range) {
    if (text.size() > 1) text += ", ";
    text += attribute_text(value);
  }
  return text + "]";
}
template <class T>
std::string attribute_text(const std::optional<T>& value) {
  return value ? attribute_text(*value) : "none";
}

}  // namespace detail

/// "kernel=[2, 2], layout=NCHW".
template <AttributesStruct T>
std::string to_string(const T& attributes) {
  std::string text;
  std::apply(
      [&](const auto&... fields) {
        ((text += (text.empty() ? "" : ", ") + std::string(fields.name) + "=" +
                  detail::attribute_text(attributes.*(fields.member))),
         ...);
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
  return "{" + to_string(value) + "}";
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
  bool operator==(const Attributes& other) const {
    if (held_ == nullptr || other.held_ == nullptr) return held_ == other.held_;
    return held_->equals(*other.held_);
  }

  friend std::string to_string(const Attributes& attributes) {
    return attributes.held_ ? attributes.held_->text() : std::string();
  }
  /// Equal attributes have equal hashes.
  size_t hash() const { return std::hash<std::string>()(to_string(*this)); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual const std::type_info& type() const = 0;
    virtual bool equals(const Base& other) const = 0;
    virtual std::string text() const = 0;
  };
  template <class T>
  struct Held final : Base {
    explicit Held(T v) : value(std::move(v)) {}
    const std::type_info& type() const override { return typeid(T); }
    bool equals(const Base& other) const override {
      return other.type() == typeid(T) && static_cast<const Held&>(other).value == value;
    }
    std::string text() const override { return to_string(value); }
    T value;
  };
  [[noreturn]] void fail_type(const char* asked) const {
    throw_error<InternalError>("[attributes] {} asked for, but {} is held", asked,
                               held_ ? held_->type().name() : "nothing");
  }

  std::shared_ptr<const Base> held_;
};

}  // namespace sinter
