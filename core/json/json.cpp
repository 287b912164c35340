#include <algorithm>
#include <string>

#include <sinter/core/base/error.h>
#include <sinter/core/json/json.h>

namespace sinter {

nlohmann::ordered_json parse_json(std::string_view text,
                                  const nlohmann::ordered_json::parser_callback_t& watch) {
  using Json = nlohmann::ordered_json;
  const auto limited = [&](int depth, Json::parse_event_t event, Json& value) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth >= kMostJsonLevels)
      throw_error<IoError>("nested deeper than {} levels", kMostJsonLevels);
    return watch == nullptr || watch(depth, event, value);
  };
  try {
    return Json::parse(text, limited);
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 2, ..."
    const std::string_view what = error.what();
    throw_error<IoError>("{}", what.substr(std::min(what.find("] ") + 2, what.size())));
  }
}

}  // namespace sinter
