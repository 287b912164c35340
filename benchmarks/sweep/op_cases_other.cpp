// Ops that are neither elementwise nor on images.
#include <sinter/ops/all_gather/all_gather.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/argmax/argmax_attributes.h>
#include <sinter/ops/cast/cast_math.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/cumsum/cumsum.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/embedding/embedding.h>
#include <sinter/ops/fill/fill_attributes.h>
#include <sinter/ops/flip/flip.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/l2_normalize/l2_normalize.h>
#include <sinter/ops/loss_scale/loss_scale.h>
#include <sinter/ops/margin/margin.h>
#include <sinter/ops/metrics/metrics.h>
#include <sinter/ops/one_hot/one_hot.h>
#include <sinter/ops/optimizer/optimizer.h>
#include <sinter/ops/pad/pad.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/random_key/random_key.h>
#include <sinter/ops/random_normal/random_normal.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/softmax/softmax.h>
#include <sinter/ops/topk/topk_attributes.h>

#include "op_cases.h"

namespace sinter::bench {
namespace {

using Cases = std::vector<OpCase>;

constexpr int64_t kTop = 5, kPicked = 100, kEmbedding = 512;

OpInput matrix(const OpSize& s) {
  return {{s.rows, s.columns}, s.dtype};
}
OpInput logits(const OpSize& s) {
  return {{s.samples(), s.classes}, s.dtype};
}
OpInput wide_logits(const OpSize& s) {
  return {{s.samples(), s.classes}};
}
OpInput labels(const OpSize& s) {
  return {{s.samples()}, DType::kInt64, s.classes};
}
OpInput of_rows(const OpSize& s) {
  return {{s.samples()}, DType::kFloat32, 0, {1.0}};
}
OpInput scalar(double value, DType dtype = DType::kFloat32) {
  return {Shape{}, dtype, 0, {value}};
}

void add_reductions(OpCaseTable& table) {
  table["sum"] = table["mean"] = table["max"] = table["min"] = [](const OpSize& s) {
    return Cases{{{matrix(s)}, ops::ReduceAttributes{{1}}, "of rows"},
                 {{matrix(s)}, ops::ReduceAttributes{{0}}, "of columns"}};
  };
  table["max_grad"] = table["min_grad"] = [](const OpSize& s) {
    return Cases{{{matrix(s), OpInput{{s.rows}, s.dtype}}, ops::ReduceAttributes{{1}}}};
  };
  table["sum_to"] = [](const OpSize& s) { return Cases{{{matrix(s)}, ops::ShapeAttributes{{s.columns}}}}; };
  table["broadcast_to"] = [](const OpSize& s) {
    return Cases{{{OpInput{{s.columns}, s.dtype}}, ops::ShapeAttributes{{s.rows, s.columns}}}};
  };
  table["cumsum"] = [](const OpSize& s) {
    return Cases{{{matrix(s)}, ops::CumsumAttributes{1}, "of rows"},
                 {{matrix(s)}, ops::CumsumAttributes{0}, "of columns"},
                 {{OpInput{{s.rows * s.columns}, s.dtype}}, ops::CumsumAttributes{0}, "of one row"}};
  };
  table["argmax"] = [](const OpSize& s) { return Cases{{{logits(s)}, ops::ArgmaxAttributes{}}}; };
  table["topk"] = [](const OpSize& s) { return Cases{{{logits(s)}, ops::TopKAttributes{kTop, -1}}}; };
  table["topk_grad"] = [](const OpSize& s) {
    const Shape chosen{s.samples(), kTop};
    return Cases{{{OpInput{chosen, DType::kInt64, 0, {0, 2, 4, 6, 8}}, OpInput{chosen, s.dtype}},
                  ops::TopKGradAttributes{s.classes, -1}}};
  };
}

void add_losses(OpCaseTable& table) {
  table["softmax"] = table["log_softmax"] = [](const OpSize& s) {
    return Cases{{{logits(s)}, ops::SoftmaxAttributes{}}};
  };
  table["softmax_grad"] = table["log_softmax_grad"] = [](const OpSize& s) {
    return Cases{{{logits(s), logits(s)}, ops::SoftmaxAttributes{}}};
  };
  table["cross_entropy"] = [](const OpSize& s) {
    return Cases{{{logits(s), labels(s)}, ops::CrossEntropyOptions{}}};
  };
  table["shard_log_sums"] = [](const OpSize& s) { return Cases{{{logits(s), labels(s)}}}; };
  table["shard_cross_entropy"] = [](const OpSize& s) {
    return Cases{{{logits(s), labels(s), of_rows(s), of_rows(s)}, ops::AllGatherAttributes{}}};
  };
  table["shard_cross_entropy_grad"] = [](const OpSize& s) {
    return Cases{{{logits(s), labels(s), of_rows(s), of_rows(s)}}};
  };
  table["cross_entropy_grad"] = [](const OpSize& s) {
    return Cases{{{logits(s), labels(s), of_rows(s), scalar(1)}, ops::CrossEntropyGradAttributes{}}};
  };
  table["combined_margin"] = [](const OpSize& s) {
    return Cases{{{logits(s), labels(s), of_rows(s), of_rows(s)}, ops::CombinedMarginOptions{}}};
  };
  table["combined_margin_grad"] = [](const OpSize& s) {
    return Cases{{{wide_logits(s), labels(s), wide_logits(s), of_rows(s), of_rows(s)},
                  ops::CombinedMarginGradAttributes{{}, s.dtype}}};
  };
  table["l2_normalize"] = [](const OpSize& s) {
    return Cases{{{logits(s)}, ops::L2NormalizeAttributes{.axis = 1}}};
  };
  table["l2_normalize_grad"] = [](const OpSize& s) {
    return Cases{{{logits(s), of_rows(s), logits(s)}, ops::L2NormalizeAttributes{.axis = 1}}};
  };
  table["one_hot"] = [](const OpSize& s) {
    return Cases{{{labels(s)}, ops::OneHotAttributes{s.classes, s.dtype}}};
  };
  table["count_ranks_"] = [](const OpSize& s) {
    return Cases{{{OpInput{{5}, DType::kInt64, 1}, logits(s), labels(s)}}};
  };
}

void add_indexing(OpCaseTable& table) {
  table["where"] = [](const OpSize& s) {
    const OpInput x{{s.rows, s.columns}, s.dtype};
    return Cases{{{OpInput{x.shape, DType::kBool, 0, {1, 0, 0, 1, 1}}, x, x}}};
  };
  table["gather"] = [](const OpSize& s) {
    return Cases{
        {{logits(s), OpInput{{s.samples(), kPicked}, DType::kInt64, s.classes}}, ops::GatherAttributes{1}}};
  };
  table["gather_grad"] = [](const OpSize& s) {
    const Shape picked{s.samples(), kPicked}, long_picked{s.samples() * 4, kPicked};
    return Cases{{{OpInput{picked, s.dtype}, OpInput{picked, DType::kInt64, s.classes}},
                  ops::GatherGradAttributes{1, {s.samples(), s.classes}}},
                 {{OpInput{long_picked, s.dtype}, OpInput{long_picked, DType::kInt64, 16}},
                  ops::GatherGradAttributes{0, {16, kPicked}},
                  "many collisions"}};
  };
  table["put_rows_"] = [](const OpSize& s) {
    const int64_t count = s.rows * 2;
    std::vector<double> every_second;  // no index comes twice
    for (int64_t i = 0; i < count; ++i) every_second.push_back(static_cast<double>(2 * i));
    return Cases{{{OpInput{{2 * count, kEmbedding}, s.dtype},
                   OpInput{{count}, DType::kInt64, 0, every_second}, OpInput{{count, kEmbedding}, s.dtype}}}};
  };
  table["take_rows_"] = [](const OpSize& s) {
    const int64_t count = s.rows * 2;
    return Cases{{{OpInput{{count, kEmbedding}, s.dtype}, OpInput{{2 * count, kEmbedding}, s.dtype},
                   OpInput{{count}, DType::kInt64, 2 * count}}}};
  };
  table["embedding"] = [](const OpSize& s) {
    const int64_t count = s.rows * s.columns / kEmbedding;
    return Cases{
        {{OpInput{{s.rows * 4 + 1, kEmbedding}, s.dtype}, OpInput{{count}, DType::kInt64, s.rows * 4}}}};
  };
  table["embedding_grad"] = [](const OpSize& s) {
    const int64_t count = s.rows * s.columns / kEmbedding;
    return Cases{{{OpInput{{count, kEmbedding}, s.dtype}, OpInput{{count}, DType::kInt64, s.rows * 4}},
                  ops::EmbeddingGradAttributes{s.rows * 4}}};
  };
}

void add_shapes(OpCaseTable& table) {
  table["concat"] = [](const OpSize& s) { return Cases{{{matrix(s), matrix(s)}, ops::ConcatAttributes{1}}}; };
  table["slice"] = [](const OpSize& s) {
    return Cases{{{matrix(s)}, ops::SliceAttributes{1, 3, s.columns - 5}}};
  };
  table["flip"] = [](const OpSize& s) {
    return Cases{{{matrix(s)}, ops::FlipAttributes{{1}}, "of rows"},
                 {{matrix(s)}, ops::FlipAttributes{{0}}, "of columns"}};
  };
  table["pad"] = [](const OpSize& s) { return Cases{{{matrix(s)}, ops::PadAttributes{{{{0, 0}, {1, 2}}}}}}; };
  table["pad_grad"] = [](const OpSize& s) {
    return Cases{{{OpInput{{s.rows, s.columns + 3}, s.dtype}}, ops::PadAttributes{{{{0, 0}, {1, 2}}}}}};
  };
  table["permute"] = [](const OpSize& s) {
    return Cases{{{OpInput{{s.images, s.channels, s.height, s.width}, s.dtype}},
                  ops::PermuteAttributes{{0, 2, 3, 1}}}};
  };
  table["cast"] = [](const OpSize& s) {
    const DType other = s.dtype == DType::kFloat32 ? DType::kFloat16 : DType::kFloat32;
    return Cases{{{matrix(s)}, ops::CastAttributes{other}}};
  };
  table["full"] = [](const OpSize& s) {
    return Cases{{{},
                  ops::FullAttributes{
                      .value = 1, .shape = {s.rows, s.columns}, .dtype = s.dtype, .device = s.device}}};
  };
  table["dropout"] = [](const OpSize& s) {
    return Cases{{{matrix(s), OpInput{{2}, DType::kInt64, 100}}, ops::DropoutAttributes{0.5}}};
  };
  table["random_normal"] = [](const OpSize& s) {
    return Cases{
        {{OpInput{{2}, DType::kInt64, 100}}, ops::RandomNormalAttributes{{s.rows * s.columns}, s.dtype}}};
  };
  table["random_key"] = [](const OpSize& s) {
    return Cases{{{std::nullopt}, ops::RandomKeyAttributes{.seed = 1, .offset = 2, .device = s.device}}};
  };
}

/// Weights are float32 also where data are in 16 bits.
void add_updates(OpCaseTable& table) {
  static const OpInput rate = scalar(1e-3, DType::kFloat64), step = scalar(1, DType::kInt64);
  static constexpr auto kWeights = [](const OpSize& s) { return OpInput{{s.rows / 2, s.columns}}; };
  static constexpr auto kSquares = [](const OpSize& s) {
    return OpInput{{s.rows / 2, s.columns}, DType::kFloat32, 0, {1.0, 2.0}};
  };
  table["sgd_step"] = [](const OpSize& s) {
    const OpInput weights = kWeights(s);
    return Cases{{{weights, weights, weights, std::nullopt, rate, std::nullopt, std::nullopt},
                  ops::update::SGDStep{.momentum = 0.9}}};
  };
  table["adamw_step"] = [](const OpSize& s) {
    const OpInput weights = kWeights(s);
    return Cases{
        {{weights, weights, weights, kSquares(s), std::nullopt, std::nullopt, rate, step, std::nullopt},
         ops::update::AdamWStep{}}};
  };
  table["rmsprop_step"] = [](const OpSize& s) {
    const OpInput weights = kWeights(s);
    return Cases{{{weights, weights, kSquares(s), std::nullopt, std::nullopt, std::nullopt, rate,
                   std::nullopt, std::nullopt},
                  ops::update::RMSpropStep{}}};
  };
  table["lars_step"] = [](const OpSize& s) {
    const OpInput weights = kWeights(s);
    return Cases{{{weights, weights, weights, std::nullopt, rate, std::nullopt, std::nullopt},
                  ops::update::LARSStep{}}};
  };
  table["lamb_step"] = [](const OpSize& s) {
    const OpInput weights = kWeights(s);
    return Cases{{{weights, weights, weights, kSquares(s), std::nullopt, rate, step, std::nullopt},
                  ops::update::LAMBStep{}}};
  };
  table["advance_steps"] = [](const OpSize&) {
    return Cases{{{OpInput{{1000}, DType::kInt64, 100}, std::nullopt, std::nullopt}}};
  };
  // Of one rank: what is left is to copy.
  table["all_reduce"] = [](const OpSize& s) { return Cases{{{kWeights(s)}, ops::AllReduceAttributes{}}}; };
  table["begin_all_reduce"] = [](const OpSize& s) {
    return Cases{{{kWeights(s), kWeights(s)}, ops::AllReduceAttributes{}}};
  };
  table["end_all_reduce"] = [](const OpSize& s) {
    const OpInput weights = kWeights(s);
    const int64_t count = weights.shape.numel();
    const OpInput sums{{ops::update::bucket_places(std::vector{count, count}).back()}, weights.dtype};
    return Cases{{{sums, weights, weights}, ops::AllReduceAttributes{}}};
  };
  table["all_gather"] = table["reduce_scatter"] = [](const OpSize& s) {
    return Cases{{{kWeights(s)}, ops::AllGatherAttributes{}}};
  };
  table["grad_norm"] = [](const OpSize& s) { return Cases{{{kWeights(s)}}}; };
  table["loss_scale"] = [](const OpSize&) {
    return Cases{
        {{scalar(2, DType::kFloat64), std::nullopt, std::nullopt}, ops::LossScaleOptions{.max_norm = 1}}};
  };
  table["add_to_mean_"] = [](const OpSize&) {
    return Cases{{{OpInput{{4}, DType::kFloat64, 0, {0.0}}, scalar(1)}, ops::AddToMeanAttributes{}}};
  };
}

}  // namespace

void add_other_cases(OpCaseTable& table) {
  add_reductions(table);
  add_losses(table);
  add_indexing(table);
  add_shapes(table);
  add_updates(table);
}

}  // namespace sinter::bench
