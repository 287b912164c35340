// The one place that parses JSON: whatever the file, what is nested too deeply is refused, as values are
// copied, compared and printed by functions that call themselves for every level. Not for public headers.
#pragma once

#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include <sinter/core/json/counting_iterator.h>

namespace sinter {

/// The most objects and lists inside each other that a file may have: more than any of ours needs.
inline constexpr int kMostJsonLevels = 32;

/// The value that a text is. `watch` may look at every event on the way, and must return true. Throws
/// IoError, with the place in the text but no name of a file, for a text that is no JSON in UTF-8, or is
/// nested too deeply.
nlohmann::ordered_json parse_json(std::string_view text,
                                  const nlohmann::ordered_json::parser_callback_t& watch = nullptr);

/// Hands the events of a text to `events`, a nlohmann::json_sax, which throws where it will not go on, and
/// which must bound the depth itself. `consumed` counts the bytes that were read so far.
template <class Events>
void read_json_events(std::string_view text, Events& events, uint64_t& consumed) {
  consumed = 0;
  nlohmann::json::sax_parse(CountingIterator(text.data(), &consumed),
                            CountingIterator(text.data() + text.size()), &events);
}

}  // namespace sinter
