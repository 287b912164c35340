#include "margin_text.h"

#include <charconv>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <vector>

#include <fmt/core.h>

#include <sinter/core/base/error.h>

namespace train_insightface {
namespace {

using namespace sinter::nn;

/// Numbers between commas; none unless all are finite.
std::optional<std::vector<double>> numbers_of(std::string_view text) {
  std::vector<double> values;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    double value = 0.0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || stop != word.data() + word.size() || !std::isfinite(value))
      return std::nullopt;
    values.push_back(value);
    if (comma == std::string_view::npos) return values;
    text.remove_prefix(comma + 1);
  }
}

/// Puts the numbers into these places, in turn; false if there are more numbers than places.
bool fill(const std::vector<double>& numbers, std::initializer_list<double*> places) {
  if (numbers.size() > places.size()) return false;
  auto place = places.begin();
  for (const double number : numbers) **place++ = number;
  return true;
}

bool is_in_range(const Margin& margin) {
  if (const auto* const m = std::get_if<CombinedMargin>(&margin))
    return m->m1 > 0.0 && m->m2 >= 0.0 && m->m2 < 3.141592653589793 && m->m3 >= 0.0;
  try {
    MarginHead(1, 1, {.margin = margin});  // which looks at everything
    return true;
  } catch (const sinter::InvalidArgument&) {
    return false;
  }
}

std::optional<Margin> named(std::string_view name, const std::vector<double>& numbers, double scale) {
  const auto filled = [&](const auto& margin, bool fits) {
    return fits ? std::optional<Margin>(margin) : std::nullopt;
  };
  if (name == "arcface" || name == "cosface") {
    CombinedMargin margin{.scale = scale};
    if (name == "cosface") margin.m2 = 0.0, margin.m3 = 0.4;
    return filled(margin, fill(numbers, {name == "cosface" ? &margin.m3 : &margin.m2}));
  }
  if (name == "adaface") {
    AdaFace margin{.scale = scale};
    return filled(margin, fill(numbers, {&margin.margin, &margin.h}));
  }
  if (name.starts_with("elasticface-arc") || name.starts_with("elasticface-cos")) {
    const bool of_cosine = name.starts_with("elasticface-cos");
    const std::string_view rest = name.substr(15);
    if (!rest.empty() && rest != "+") return std::nullopt;
    ElasticFace margin{.scale = scale, .of_cosine = of_cosine, .sorted = rest == "+"};
    if (of_cosine) margin.mean = 0.35;
    if (margin.sorted) margin.deviation = of_cosine ? 0.02 : 0.0175;
    return filled(margin, fill(numbers, {&margin.mean, &margin.deviation}));
  }
  if (name == "magface") {
    MagFace margin{.scale = scale};
    return filled(margin, fill(numbers, {&margin.weight, &margin.least_norm, &margin.most_norm,
                                         &margin.least_margin, &margin.most_margin}));
  }
  if (name == "curricularface") {
    CurricularFace margin{.scale = scale};
    return filled(margin, fill(numbers, {&margin.margin}));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Margin> parse_margin(std::string_view text, double scale) {
  std::optional<Margin> margin;
  if (const auto alone = numbers_of(text)) {
    if (alone->size() != 3) return std::nullopt;
    margin = CombinedMargin{.scale = scale, .m1 = (*alone)[0], .m2 = (*alone)[1], .m3 = (*alone)[2]};
  } else {
    const size_t comma = text.find(',');
    const std::optional<std::vector<double>> numbers =
        comma == std::string_view::npos ? std::vector<double>() : numbers_of(text.substr(comma + 1));
    if (!numbers) return std::nullopt;
    margin = named(text.substr(0, comma), *numbers, scale);
  }
  return margin && is_in_range(*margin) ? margin : std::nullopt;
}

std::string margin_forms() {
  return "arcface, cosface, adaface, elasticface-arc or -cos (or with +), magface, curricularface, maybe "
         "with "
         "numbers of its own in range, such as adaface,0.4,0.333, or m1,m2,m3 with m1 > 0, m2 in [0, pi) and "
         "m3 "
         ">= 0, such as 1,0.3,0.2";
}

std::string describe(const Margin& margin) {
  if (const auto* const m = std::get_if<CombinedMargin>(&margin))
    return fmt::format("margins {}, {} and {}, scale {}", m->m1, m->m2, m->m3, m->scale);
  if (const auto* const m = std::get_if<AdaFace>(&margin))
    return fmt::format("AdaFace, margin {}, h {}, scale {}", m->margin, m->h, m->scale);
  if (const auto* const m = std::get_if<ElasticFace>(&margin))
    return fmt::format("ElasticFace-{}{}, {} and deviation {}, scale {}", m->of_cosine ? "Cos" : "Arc",
                       m->sorted ? "+" : "", m->mean, m->deviation, m->scale);
  if (const auto* const m = std::get_if<MagFace>(&margin))
    return fmt::format("MagFace, margins {} to {} of lengths {} to {}, weight {}, scale {}", m->least_margin,
                       m->most_margin, m->least_norm, m->most_norm, m->weight, m->scale);
  const auto& m = std::get<CurricularFace>(margin);
  return fmt::format("CurricularFace, margin {}, scale {}", m.margin, m.scale);
}

}  // namespace train_insightface
