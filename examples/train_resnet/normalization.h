// How the images of weights are normalised that do not say it themselves: --normalization.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <sinter/nn/data/normalize.h>

#include "trainer/option_table.h"

namespace train_resnet {

/// `choice` is "auto", "imagenet", "data", or means and deviations as in 0.5/0.25.
void add_normalization_row(sinter::examples::OptionTable& table, std::string& choice);

/// What `choice` says of weights for images of so many channels; where it is "auto", ImageNet's for three.
/// None: that of the data that these weights are tested or trained with. Throws Error that names `source` if
/// the choice is of another number of channels.
std::optional<sinter::nn::data::Normalization> assumed_normalization(const std::string& choice,
                                                                     const std::string& source,
                                                                     int64_t channels);

/// Says that ImageNet's was taken for that of weights, if nobody chose it.
void tell_assumed(const std::string& choice, const std::string& source, int64_t channels);

/// Throws Error if the images of weights that say how they are normalised are to be normalised by another
/// choice than `own`, which these were trained by.
void check_no_choice(const std::string& choice, const std::string& source, const std::string& own = "auto");

}  // namespace train_resnet
