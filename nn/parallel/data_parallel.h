// Data-parallel training: every rank has the model and a part of each batch, and gradients are summed.
//
//   const auto ranks = Communicator::join();
//   nn::TrainJob job(model, nn::CrossEntropyLoss{}, sgd, {.communicator = ranks.get()});
//
// is all for a job. A loop of one's own calls the functions below:
//
//   nn::broadcast_parameters(model, *ranks);      // and what is trained beside it; EMA::broadcast
//   ...
//   const RandomPartScope part(ranks->rank(), ranks->size());  // of what dropout draws
//   const Tensor loss = ...;
//   backward(nn::scale_loss(loss, *ranks));
//   nn::all_reduce_gradients(sgd.parameters(), *ranks);
//   sgd.step(learning_rate);
//
// Norms of gradients, and a scaler's decision to skip a step, then see the sums over all ranks, and come out
// alike on all.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/comm/communicator.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// Gives all ranks the parameters and buffers of rank 0, but for those parameters that are each rank's own
/// (`sharded`). Throws CommunicationError, which names a rank, if theirs have other names or specs.
void broadcast_parameters(const ModuleBase& model, const Communicator& ranks,
                          const std::vector<Parameter>& sharded = {});

/// The same for parameters beside a model, such as those of a head or a loss: optimizer.parameters() are all
/// that trains.
void broadcast_parameters(const std::vector<Parameter>& parameters, const Communicator& ranks,
                          const std::vector<Parameter>& sharded = {});
/// The same for tensors, each with its name.
using LabelledTensors = std::vector<std::pair<std::string, Tensor>>;
void broadcast_parameters(const LabelledTensors& tensors, const Communicator& ranks);

/// Throws CommunicationError, which names a rank and a parameter, unless all ranks' parameters but those that
/// are each rank's own are equal bit for bit. Buffers, such as running statistics of batch norms, are each
/// rank's own.
void check_parameters_equal(const ModuleBase& model, const Communicator& ranks,
                            const std::vector<Parameter>& sharded = {});
void check_parameters_equal(const std::vector<Parameter>& parameters, const Communicator& ranks,
                            const std::vector<Parameter>& sharded = {});
void check_parameters_equal(const LabelledTensors& tensors, const Communicator& ranks);

/// loss / number of ranks: the sum of the ranks' gradients is then that of the mean over all of their
/// batches, which are equally large (check_parts).
Tensor scale_loss(const Tensor& loss, const Communicator& ranks);

/// Throws InvalidArgument on all ranks, which names two of them with their numbers, unless all ranks have a
/// part of a batch of the same size. `tag`: who asks. One exchange of a number through the host.
void check_parts(const char* tag, int64_t rows, const Communicator& ranks);
/// The same with the numbers of all ranks, which have been exchanged.
void check_parts(const char* tag, std::span<const int64_t> rows, const Communicator& ranks);

/// Puts the sums over all ranks in the place of the gradients. Parameters without a gradient have none on any
/// rank: else, or where names, shapes or dtypes differ, throws CommunicationError on all ranks. Gradients are
/// summed in buckets, from the last parameter to the first.
void all_reduce_gradients(const std::vector<Parameter>& parameters, const Communicator& ranks);

/// The parameters that are not among `sharded`, in their order.
std::vector<Parameter> exclude(const std::vector<Parameter>& parameters,
                               const std::vector<Parameter>& sharded);

/// The sum of x over all ranks, at once and not in a bucket: for numbers that something waits for.
Tensor all_reduce(const Tensor& x, const Communicator& ranks);

}  // namespace sinter::nn
