#include <algorithm>

#include <sinter/core/op/op_def.h>

namespace sinter {

const char* InferContext::tag() const {
  return op_.name.c_str();
}

std::string InferContext::input_name(size_t i) const {
  std::string name = op_.input_def(i).name;
  if (op_.variadic) name += "[" + std::to_string(i / op_.inputs.size()) + "]";
  return name;
}

void InferContext::expect_rank(size_t i, int rank) const {
  expect_rank(i, {rank});
}

void InferContext::expect_rank(size_t i, std::initializer_list<int> ranks) const {
  if (std::find(ranks.begin(), ranks.end(), shape(i).rank()) != ranks.end()) return;
  std::string expected;
  for (int rank : ranks) expected += (expected.empty() ? "" : " or ") + std::to_string(rank);
  throw_error<InvalidArgument>("[{}] expected {} of rank {} but got shape {}", tag(), input_name(i), expected,
                               shape(i));
}

void InferContext::expect_float(size_t i) const {
  SINTER_CHECK(is_float(input(i).dtype), "[{}] expected {} of a floating-point dtype but got {}", tag(),
               input_name(i), input(i).dtype);
}

void InferContext::expect_number(size_t i) const {
  SINTER_CHECK(input(i).dtype != DType::kBool, "[{}] expected {} of a numeric dtype but got bool", tag(),
               input_name(i));
}

void InferContext::expect_dtype(size_t i, DType dtype) const {
  SINTER_CHECK(input(i).dtype == dtype, "[{}] expected {} of dtype {} but got {}", tag(), input_name(i),
               dtype, input(i).dtype);
}

void InferContext::expect_same_dtype(size_t i, size_t j) const {
  SINTER_CHECK(input(i).dtype == input(j).dtype, "[{}] expected {} and {} of one dtype but got {} and {}",
               tag(), input_name(i), input_name(j), input(i).dtype, input(j).dtype);
}

void InferContext::expect_shape(size_t i, const Shape& expected) const {
  SINTER_CHECK(shape(i) == expected, "[{}] expected {} of shape {} but got {}", tag(), input_name(i),
               expected, shape(i));
}

}  // namespace sinter
