#include <sinter/core/base/dtype.h>

namespace sinter {

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat64:
      return "float64";
    case DType::kInt64:
      return "int64";
    case DType::kInt32:
      return "int32";
    case DType::kUInt8:
      return "uint8";
    case DType::kBool:
      return "bool";
  }
  return "unknown";
}

DType parse_dtype(std::string_view text) {
  for (DType dtype : kAllDTypes) {
    if (to_string(dtype) == text) return dtype;
  }
  throw_error<InvalidArgument>(
      "[dtype] '{}' is not a dtype; expected one of float32, float16, bfloat16, float64, "
      "int64, int32, uint8, bool",
      text);
}

}  // namespace sinter
