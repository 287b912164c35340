#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <set>
#include <type_traits>

#include <fmt/ranges.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/models/iresnet.h>
#include <sinter/nn/models/mobile_face_net.h>
#include <sinter/nn/models/resnet_names.h>
#include <sinter/nn/predict/named_model.h>

namespace sinter::nn {

namespace {

/// Reads options by name, and knows which were not asked for.
class OptionReader {
 public:
  explicit OptionReader(const ModelMetadata& metadata) : metadata_(metadata) {}

  int64_t whole(const std::string& name, int64_t otherwise) {
    const std::string* const text = find(name);
    if (text == nullptr) return otherwise;
    int64_t value = 0;
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, value);
    if (error != std::errc() || stop != end || value <= 0) fail(name, "a whole number above 0", *text);
    return value;
  }
  int64_t whole(const std::string& name) {
    const int64_t value = whole(name, 0);
    SINTER_CHECK(value > 0, "[make_model] expected an option \"{}\" of {} but there is none", name,
                 metadata_.model);
    return value;
  }
  bool flag(const std::string& name) {
    const std::string* const text = find(name);
    if (text == nullptr || *text == "false") return false;
    if (*text != "true") fail(name, "true or false", *text);
    return true;
  }
  /// Throws InvalidArgument for an option that nobody asked for: it would change the network.
  void finish() const {
    for (const auto& [name, value] : metadata_.options) {
      SINTER_CHECK(asked_.contains(name), "[make_model] expected options of {} among {} but got \"{}\"",
                   metadata_.model, fmt::join(asked_, ", "), name);
    }
  }

 private:
  const std::string* find(const std::string& name) {
    asked_.insert(name);
    const auto found = metadata_.options.find(name);
    return found == metadata_.options.end() ? nullptr : &found->second;
  }
  [[noreturn]] void fail(const std::string& name, const char* expected, const std::string& got) const {
    throw_error<InvalidArgument>("[make_model] expected {} as option \"{}\" of {} but got '{}'", expected,
                                 name, metadata_.model, got);
  }

  const ModelMetadata& metadata_;
  std::set<std::string> asked_;
};

using Maker = std::function<AnyModule(OptionReader& options, Layout layout)>;

Maker resnet_maker(const std::string& name) {
  return [name](OptionReader& options, Layout layout) {
    const ResNetOptions values{.classes = options.whole("classes"),
                               .in_channels = options.whole("in_channels", 3),
                               .layout = layout,
                               .small_stem = !is_cifar_resnet(name) && options.flag("small_stem")};
    options.finish();
    return AnyModule(make_resnet(name, values));
  };
}

/// Of the networks that make embeddings. An iResNet may have a "width" of its own.
template <class Model, class Options>
Maker maker(Model (*make)(const Options&)) {
  return [make](OptionReader& options, Layout layout) {
    Options values{.dimensions = options.whole("dimensions"),
                   .image_size = options.whole("image_size", 112),
                   .in_channels = options.whole("in_channels", 3),
                   .layout = layout};
    if constexpr (std::is_same_v<Options, IResNetOptions>)
      values.width = options.whole("width", values.width);
    options.finish();
    return AnyModule(make(values));
  };
}

const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> all = [] {
    std::map<std::string, Maker> named = {
        {"iresnet18", maker(iresnet18)},
        {"iresnet34", maker(iresnet34)},
        {"iresnet50", maker(iresnet50)},
        {"iresnet100", maker(iresnet100)},
        {"iresnet200", maker(iresnet200)},
        {"mbf", maker(mobile_face_net)},
        {"mbf_large", maker(mobile_face_net_large)},
    };
    for (const std::string& name : resnet_names()) named[name] = resnet_maker(name);
    return named;
  }();
  return all;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : makers()) names.push_back(name);
  return names;
}

AnyModule make_model(const ModelMetadata& metadata, Layout layout) {
  const auto found = makers().find(metadata.model);
  SINTER_CHECK(found != makers().end(), "[make_model] expected a model among {} but got '{}'",
               fmt::join(model_names(), ", "), metadata.model);
  OptionReader options(metadata);
  return found->second(options, layout);
}

}  // namespace sinter::nn
