// The margin between identities, as --margin writes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <sinter/nn/loss/margin.h>

namespace train_insightface {

/// "arcface", "cosface", "adaface", "elasticface-arc", "elasticface-cos", either with "+" behind it,
/// "magface" or "curricularface", and behind a comma as many numbers of it as differ from its own; or
/// "m1,m2,m3". None unless it is one of these, in range.
std::optional<sinter::nn::Margin> parse_margin(std::string_view text, double scale);

/// What --margin takes, for a message.
std::string margin_forms();

/// Whether the margins are the same for all rows, so that --margin-gradient and --interclass-filter are of
/// them.
inline bool is_combined(const sinter::nn::Margin& margin) {
  return std::holds_alternative<sinter::nn::CombinedMargin>(margin);
}

/// For the start of a run: "margins 1, 0.5 and 0, scale 64".
std::string describe(const sinter::nn::Margin& margin);

}  // namespace train_insightface
