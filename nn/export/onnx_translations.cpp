#include <mutex>

#include <sinter/core/op/registry.h>
#include <sinter/nn/export/onnx_translations.h>

namespace sinter::nn {
namespace {

struct Translations {
  std::mutex mutex;
  OnnxTable table;
};

Translations& translations() {
  static Translations& all = *[] {
    auto* const made = new Translations;
    add_elementwise_translations(made->table);
    add_image_translations(made->table);
    add_product_translations(made->table);
    add_shape_translations(made->table);
    return made;
  }();
  return all;
}

}  // namespace

void register_onnx_translation(const std::string& op, OnnxTranslation translation) {
  SINTER_CHECK(translation != nullptr, "[export_onnx] expected a translation of {} but got none", op);
  OpRegistry::instance().get(op);  // throws unless it is there
  Translations& all = translations();
  const std::lock_guard lock(all.mutex);
  SINTER_CHECK(all.table.emplace(op, std::move(translation)).second,
               "[export_onnx] expected an op without a translation but got '{}'", op);
}

OnnxTranslation find_onnx_translation(const std::string& op) {
  Translations& all = translations();
  const std::lock_guard lock(all.mutex);
  const auto found = all.table.find(op);
  return found == all.table.end() ? OnnxTranslation() : found->second;
}

std::vector<std::string> onnx_translated_ops() {
  Translations& all = translations();
  const std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [name, translation] : all.table) names.push_back(name);
  return names;
}

}  // namespace sinter::nn
