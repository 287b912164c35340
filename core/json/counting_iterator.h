// An iterator over text that counts what a parser has consumed, so that errors can name the byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace sinter {

/// Iterates over characters and adds each step to a counter that all copies share.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  explicit CountingIterator(const char* place, uint64_t* count = nullptr) : place_(place), count_(count) {}

  reference operator*() const { return *place_; }
  CountingIterator& operator++() {
    ++place_;
    if (count_ != nullptr) ++*count_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return place_ == other.place_; }

 private:
  const char* place_;
  uint64_t* count_;
};

}  // namespace sinter
