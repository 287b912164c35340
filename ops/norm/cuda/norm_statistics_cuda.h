// The passes of forward normalisation that come before the map. Tables are scratch of norm_table_bytes with
// kStatisticsBlocks and 2 values.
#pragma once

#include <sinter/ops/norm/norm_call.h>

namespace sinter::ops {

/// Fills mean, inv_std and `parameters`, Normalize of the compute type, of one tensor, and moves its running
/// statistics; of given statistics only the parameters are made. What it launches last is a kernel, so that
/// the map may be launched early.
void find_statistics(const NormCall& call, const NormTensor& tensor, const Stream& stream, void* parameters,
                     void* table);

/// The sums over each channel's elements and over their squares, 2 * channels, in the compute type of x's
/// dtype; at least one channel.
void sum_channels_and_squares(const ChannelView& view, DType dtype, const void* x, const Stream& stream,
                              void* sums, void* table);

/// The same in float64, and behind them the number of elements that each channel has.
void sum_for_ranks(const ChannelView& view, DType dtype, const void* x, const Stream& stream, double* sums,
                   void* table);

}  // namespace sinter::ops
