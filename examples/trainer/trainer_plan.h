// What a run will take of memory, time and energy, told before it begins; and the batch that --batch auto
// takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <sinter/core/comm/communicator.h>

#include "trainer/trainer_base.h"

namespace sinter::examples {

/// The largest n from 1 to `most` of which `bytes(n)`, which grows with n about evenly, is no more than
/// `room`; 0 if that of 1 is more.
int64_t largest_fitting(int64_t most, size_t room, const std::function<size_t(int64_t n)>& bytes);

/// A part of a data set for tests, spread over it, of which each rank has its share; tells `sample`, but for
/// the batch, how much it is.
std::shared_ptr<const nn::data::Dataset> tried_part(const std::shared_ptr<const nn::data::Dataset>& test,
                                                    const TrainerOptions& options, Device device,
                                                    const Communicator& ranks, TestSample& sample);
/// How many images each rank tries of so many: few where that is slow.
int64_t tried_images(const TrainerOptions& options, Device device, int64_t images);

/// Decides what --batch auto leaves open, if it was given, of a data set of so many images: all ranks call it
/// and get one number. `make` makes
/// the trainer of the options as they are then, whose tests are `sample`.
void settle_batch(TrainerOptions& options, int64_t images, const TestSample& sample,
                  const Communicator& ranks, const std::function<std::unique_ptr<TrainerBase>()>& make);

}  // namespace sinter::examples
