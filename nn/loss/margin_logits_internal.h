// From cosines to logits, for every margin that MarginHead takes.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sinter/nn/loss/margin.h>

namespace sinter::nn {

/// What the logits of a step are made of. All rows are those of all ranks, whatever rank has their classes.
struct MarginCall {
  Tensor cosine;                  ///< (N, C), of the classes here
  Tensor labels;                  ///< (N), int64
  Tensor norms;                   ///< (N), of embeddings, in the dtype of the logits; if uses_norms()
  std::span<const Buffer> state;  ///< as margin_state() lists it
  bool training;
  const Communicator* ranks;  ///< null: alone
};

/// Throws InvalidArgument for numbers out of range.
void check_margin(const Margin& margin);
/// "adaface, scale 64, margin 0.4".
std::string describe_margin(const Margin& margin);
/// What a margin remembers, and where it starts.
std::vector<std::pair<std::string, double>> margin_state(const Margin& margin);
bool uses_norms(const Margin& margin);

/// Logits (N, C).
Tensor margin_logits(const Margin& margin, const MarginCall& call);
/// What a margin adds to the losses of rows with these lengths; undefined if it adds nothing.
Tensor margin_penalty(const Margin& margin, const Tensor& norms);

}  // namespace sinter::nn
