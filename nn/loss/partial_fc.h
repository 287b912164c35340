// PartialFC: a margin head over so many classes that each step trains the centres of a part of them only.
//
// Source: X. An et al., "Killing two birds with one stone: Efficient and robust training of face recognition
// CNNs by Partial FC", CVPR 2022.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sinter/nn/loss/margin.h>
#include <sinter/nn/optim/optimizer.h>

namespace sinter::nn {

struct PartialFCOptions {
  MarginHeadOptions head = {};
  double sample_rate = 1.0;  ///< in (0, 1]: the share of the classes that takes part in a step
  /// Take at least so many, whatever the share: the size of a batch, every row of which may be of another
  /// class.
  int64_t min_classes = 1;
  uint64_t seed = 0;  ///< of the choice of classes
  /// The ranks that divide the classes. Not owned; null: this process has all.
  const Communicator* communicator = nullptr;
};

/// A table of centres (classes, dimensions), or of the sub-centres of each class, and a MarginHead over the
/// few rows of it that a step works with: those of the batch's own classes, and of others at random. The rows
/// are fetched before the step and put back after it, what the optimiser keeps of them (momenta) too, so that
/// the step itself is one of an ordinary small head: eager, or as a job, which sees the same tensors in every
/// step.
///
///   nn::PartialFC centres(512, identities, {.sample_rate = 0.1, .min_classes = 128});
///   nn::SGD sgd(parameters of the backbone and of centres.head(), {.momentum = 0.9});
///   for (const auto& [images, labels] : loader) {
///     const Tensor rows = centres.sample(batch.host_labels, sgd);
///     Tensor loss = centres.head()(backbone(images), rows);
///     ...
///     sgd.step(lr);
///     centres.update(sgd);
///   }
///
/// With a communicator each rank has the centres of its part of the classes, [first_class(), first_class() +
/// local_classes()), which differ by one at most in number, and the loss is exact: softmax is over the
/// centres of all ranks (ops::shard_cross_entropy), as many processes with a part of a batch each train the
/// weights of one with all of it. The head's weight is no parameter that ranks share:
/// TrainJobOptions::sharded takes it, and in a loop of one's own it goes neither to broadcast_parameters nor
/// to all_reduce_gradients. `min_classes` then is the size of the batch of all ranks, and every row needs a
/// class. Members that all ranks must call together are sample, state and whole.
///
/// Centres that take no part in a step stay as they are, without weight decay, and so do their momenta. With
/// a sample rate of 1 the head's weight is the table itself and nothing is copied. Which classes take part
/// depends on the seed, the rank, the number of the step and the labels alone. Nothing waits for the device.
class PartialFC {
 public:
  /// Centres are normal around 0, as in MarginHeadOptions, from default_generator(). Throws InvalidArgument
  /// for counts that are not positive or a rate outside (0, 1].
  PartialFC(int64_t dimensions, int64_t classes, const PartialFCOptions& options = {});

  /// The head that trains: its weight has sampled_classes() rows, which are only worth something during a
  /// step.
  const MarginHead& head() const { return head_; }
  int64_t classes() const { return classes_; }  ///< of all ranks
  int64_t row_width() const { return width_; }  ///< dimensions, of all sub-centres of a class
  int64_t local_classes() const { return own_; }
  int64_t first_class() const { return first_; }
  int64_t sampled_classes() const { return sampled_; }
  /// Whether a step works with a part of the classes.
  bool is_partial() const { return sampled_ < own_; }

  /// A tensor of the shape of the head's weight of a head with all classes, such as its momenta, from the
  /// rows of all ranks: on rank 0 a copy on the host, elsewhere undefined. And a rank's rows of such a
  /// tensor.
  Tensor whole(const Tensor& rows) const;
  Tensor local_rows(const Tensor& whole) const;

  /// Moves table and head; before the first step.
  void to(Device device);

  /// Chooses the classes of a step and fetches their rows. `labels`: the classes of the batch, or
  /// kNoPositive, of this rank's part of it. Gives the labels (N), or of all ranks (ranks * N), int64, as the
  /// head counts, on its device. Throws InvalidArgument, and
  /// changes nothing, for a label that is neither, for more different ones than the head has rows, or if the
  /// step before was not ended; and on all ranks, naming two with their numbers, if not all have as many
  /// labels.
  Tensor sample(std::span<const int64_t> labels, const Optimizer& optimizer);
  /// The same for the batches of a step whose gradients are accumulated, all of one size: the classes are
  /// chosen once for all of them, and each has its labels. `min_classes` then is the size of all batches.
  std::vector<Tensor> sample(const std::vector<std::vector<int64_t>>& batches, const Optimizer& optimizer);
  /// Puts the rows back, also of a step that the scaler skipped.
  void update(const Optimizer& optimizer);

  /// The rows of the head in the present step, sorted: row i is class sampled()[i].
  const std::vector<int64_t>& sampled() const { return chosen_; }

  /// Between steps, copies of all that the next one depends on: "weight" (classes, row_width()), what the
  /// margin remembers, by the names of the head's buffers, and, if it is partial, "steps" (their number) and
  /// what optimisers keep of the centres: "momentum" and so on. The optimiser's own state holds the rows of
  /// the last step, which do no harm. Of several ranks, rank 0 gets the rows of all, so that any number of
  /// ranks can go on with them, and the others nothing.
  State state() const;
  /// The inverse; a margin's averages that the state lacks stay. Throws InvalidArgument, and changes nothing,
  /// for other names, shapes or dtypes.
  void load_state(const State& state);

 private:
  /// A tensor of the optimiser's, or the head's weight, beside the table that it is a part of.
  struct Rows {
    Tensor part, table;
  };
  std::vector<Rows> optimizer_rows(const Optimizer& optimizer, bool make_tables);
  void choose(std::span<const int64_t> labels);
  std::vector<int64_t> of_all_ranks(std::span<const int64_t> labels);
  std::vector<int64_t> gathered(std::span<const int64_t> labels);
  Tensor draw_centres(double deviation) const;

  const Communicator* ranks_;  // null: alone
  int64_t classes_, first_, own_, width_, sampled_;
  uint64_t seed_;
  MarginHead head_;
  Tensor table_;  // (classes, dimensions), float32; undefined if the head has all rows
  std::vector<std::pair<std::string, Tensor>> optimizer_tables_;  // by the optimiser's name of the buffer
  int64_t steps_ = 0;                                             // that were begun
  bool in_step_ = false;
  std::vector<int64_t> chosen_;
  std::vector<uint64_t> marks_;  // a bit for each class
  Tensor indices_;               // chosen_, on the device
  size_t room_ = 0;              // for labels in an exchange between ranks, alike on all
};

}  // namespace sinter::nn
