// The passes of forward normalisation that come before the map.
#pragma once

#include <sinter/ops/norm/norm_call.h>
#include <sinter/ops/norm/norm_math.h>

namespace sinter::ops {

/// Fills mean, inv_std and `parameters` of one tensor, and moves its running statistics; of given statistics
/// only the parameters are made. `table`: scratch of
/// norm_table_bytes with kStatisticsBlocks and 2 values, for calls in training. What it launches last is a
/// kernel, so that the map may be launched early. For float, double, float16 and bfloat16.
template <class T>
void find_statistics(const NormCall& call, const NormTensor& tensor, const Stream& stream,
                     Normalize<compute_type<T>>* parameters, void* table);

/// The same of the call's tensor and its addend, neither of which has sums from outside, side by side;
/// `table` for kPairedStatisticsBlocks, twice.
template <class T>
void find_paired_statistics(const NormCall& call, const Stream& stream,
                            Normalize<compute_type<T>>* main_parameters,
                            Normalize<compute_type<T>>* addend_parameters, void* table);

/// The sums over each channel's elements and over their squares, 2 * channels, and behind them the number of
/// elements that each channel has. `table` as above. For the same types; at least one channel.
template <class T>
void sum_statistics(const ChannelView& view, const T* x, const Stream& stream, double* sums, void* table);

/// The same sums in the compute type, 2 * channels, without the number.
template <class T>
void sum_channels_and_squares(const ChannelView& view, const T* x, const Stream& stream,
                              compute_type<T>* sums, void* table);

}  // namespace sinter::ops
