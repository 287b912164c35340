// Views, and the special cases and errors of the ops that move elements or look them up.
#include <sinter/autograd/backward.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/embedding/embedding.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/one_hot/one_hot.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/pad/pad.h>
#include <sinter/ops/put_rows/put_rows.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>

#include "ops/ops_test_support.h"

namespace sinter::ops {
namespace {

using testing::counting;
using testing::Floats;
using testing::message_of;
using Ints = std::vector<int64_t>;

TEST(ReshapeTest, IsAView) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(reshape(x, {4, -1}).shape(), (Shape{4, 6}));
  EXPECT_EQ(reshape(x, {-1}).raw_data(), x.raw_data());
  EXPECT_EQ(flatten(x, 1).shape(), (Shape{2, 12}));
  EXPECT_EQ(flatten(x, -2).shape(), (Shape{2, 12}));
  EXPECT_EQ(flatten(x, 0, 1).size(0), x.size(0) * x.size(1));
  EXPECT_EQ(flatten(Tensor::scalar(1.0f), 1).shape(), (Shape{1}));
  EXPECT_EQ(unsqueeze(x, 0).shape(), (Shape{1, 2, 3, 4}));
  EXPECT_EQ(unsqueeze(x, -1).shape(), (Shape{2, 3, 4, 1}));
  EXPECT_EQ(squeeze(unsqueeze(x, 1), 1).shape(), x.shape());
  EXPECT_EQ(reshape(counting({0, 3}), {-1, 5}).shape(), (Shape{0, 5}));
}

TEST(ReshapeTest, NamesWhatIsWrong) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(message_of([&] { reshape(x, {5}); }),
            "[reshape] shape (2, 3) has 6 elements but shape (5,) has 5");
  EXPECT_EQ(message_of([&] {
              reshape(x, {-1, -1});
            }),
            "[reshape] expected at most one extent of -1 but got 2");
  EXPECT_EQ(message_of([&] {
              reshape(x, {4, -1});
            }),
            "[reshape] cannot split the 6 elements of shape (2, 3) into groups of 4");
  EXPECT_EQ(message_of([&] {
              reshape(counting({0}), {0, -1});
            }),
            "[reshape] cannot infer an extent of -1 beside an extent of 0");
  EXPECT_EQ(message_of([&] { reshape(x, {-2, 3}); }), "[shape] expected extents >= 0 but axis 0 has -2");
  EXPECT_EQ(message_of([&] { squeeze(x, 1); }), "[squeeze] expected extent 1 on axis 1 but got shape (2, 3)");
}

TEST(SliceTest, SharesMemoryOnTheLeadingAxisOnly) {
  const Tensor x = counting({1, 3, 4});
  const Tensor rows = slice(x, 1, 1, 3);
  EXPECT_EQ(rows.data<float>(), x.data<float>() + 4);
  EXPECT_EQ(slice(x, 2, -3, -1).to_vector<float>(), (Floats{1, 2, 5, 6, 9, 10}));
  EXPECT_NE(slice(x, 2, 0, 4).raw_data(), x.raw_data());
  EXPECT_EQ(slice(x, 1, 2, 2).shape(), (Shape{1, 0, 4}));
}

TEST(SliceTest, SendsGradientsToTheRange) {
  const Tensor x = counting({2, 3}).set_requires_grad(true);
  backward(slice(x, 0, 1, 2), {.gradient = counting({1, 3})});
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, 0, 0, 0, 1, 2}));
}

TEST(SliceTest, NamesWhatIsWrong) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(message_of([&] { slice(x, 1, 2, 4); }),
            "[slice] expected 0 <= begin <= end <= 3 on axis 1 of shape (2, 3) but got begin 2 and end 4");
  EXPECT_EQ(message_of([&] { slice(x, 1, 2, 1); }),
            "[slice] expected 0 <= begin <= end <= 3 on axis 1 of shape (2, 3) but got begin 2 and end 1");
  EXPECT_EQ(message_of([&] { slice(x, 2, 0, 1); }), "[slice] axis 2 is out of range for a tensor of rank 2");
}

TEST(ConcatTest, NamesWhatIsWrong) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(message_of([&] { concat({}, 0); }), "[concat] expected at least one tensor but got none");
  EXPECT_EQ(message_of([&] {
              concat({x, counting({2})}, 0);
            }),
            "[concat] expected x[1] of rank 2 but got shape (2,)");
  EXPECT_EQ(message_of([&] {
              concat({x, counting({2, 4})}, 0);
            }),
            "[concat] expected x[1] of shape (2, 3) but got (2, 4)");
  EXPECT_EQ(message_of([&] {
              concat({x, Tensor::zeros({2, 3}, DType::kInt64)}, 0);
            }),
            "[concat] expected x[1] and x[0] of one dtype but got int64 and float32");
  EXPECT_EQ(message_of([&] { concat({Tensor::scalar(1.0f)}, 0); }),
            "[concat] axis 0 is out of range for a tensor of rank 0");
}

TEST(ConcatTest, MovesIntegers) {
  const Tensor a = Tensor::from_values(Ints{1, 2}, {2, 1}), b = Tensor::from_values(Ints{3, 4, 5, 6}, {2, 2});
  EXPECT_EQ(concat({a, b}, -1).to_vector<int64_t>(), (Ints{1, 3, 4, 2, 5, 6}));
}

TEST(PadTest, FillsIntegersAndRefusesWhatTheyCannotHold) {
  const Tensor x = Tensor::from_values(Ints{5, 6}, {2});
  EXPECT_EQ(pad(x, {{1, 2}}, {.mode = PadMode::kConstant, .value = -3}).to_vector<int64_t>(),
            (Ints{-3, 5, 6, -3, -3}));
  EXPECT_EQ(message_of([&] {
              pad(x, {{1, 2}}, {.mode = PadMode::kConstant, .value = 0.5});
            }),
            "[pad] expected a value that int64 can represent but got 0.5");
  EXPECT_EQ(message_of([&] {
              pad(Tensor::zeros({2}, DType::kUInt8), {{1, 2}}, {.mode = PadMode::kConstant, .value = 256});
            }),
            "[pad] expected a value that uint8 can represent but got 256");
  EXPECT_EQ(
      pad(counting({0, 2}), {{1, 0}, {0, 0}}, {.mode = PadMode::kConstant, .value = 4}).to_vector<float>(),
      (Floats{4, 4}));
  EXPECT_EQ(pad(Tensor::scalar(2.0f), {}).item(), 2.0);
}

TEST(PadTest, NamesWhatIsWrong) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(message_of([&] {
              pad(x, {{1, 1}});
            }),
            "[pad] expected 2 pairs of padding for shape (2, 3) but got 1");
  EXPECT_EQ(message_of([&] {
              pad(x, {{0, 0}, {-1, 0}});
            }),
            "[pad] expected padding >= 0 on axis 1 but got -1 before and 0 after");
  EXPECT_EQ(message_of([&] {
              pad(x, {{0, 0}, {1, 3}}, {.mode = PadMode::kReflect});
            }),
            "[pad] reflection needs padding smaller than extent 3 of axis 1 but got 1 before and 3 after");
  EXPECT_EQ(message_of([&] {
              pad(counting({0}), {{1, 0}}, {.mode = PadMode::kReplicate});
            }),
            "[pad] there is nothing to replicate on axis 0 of extent 0");
  EXPECT_EQ(message_of([&] {
              vjp::pad(x, {{2, 1}, {0, 0}});
            }),
            "[pad_grad] padding 2 and 1 exceeds extent 2 of axis 0");
}

TEST(EmbeddingTest, LooksUpAnyDtypeAndChecksIndices) {
  const Tensor table = Tensor::from_values(Ints{1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor indices = Tensor::from_values(Ints{2, 0}, {2, 1});
  const Tensor y = embedding(table, indices);
  EXPECT_EQ(y.shape(), (Shape{2, 1, 2}));
  EXPECT_EQ(y.to_vector<int64_t>(), (Ints{5, 6, 1, 2}));
  EXPECT_EQ(message_of([&] {
              embedding(table, Tensor::from_values(Ints{0, 3, -1}, {3}));
            }),
            "[embedding] expected indices in [0, 3) but got 3 at position 1");
  EXPECT_EQ(message_of([&] { embedding(table, counting({2})); }),
            "[embedding] expected indices of dtype int64 but got float32");
  EXPECT_EQ(message_of([&] { embedding(counting({2}), indices); }),
            "[embedding] expected weight of rank 2 but got shape (2,)");
  EXPECT_EQ(embedding(counting({0, 4}), Tensor::zeros({0}, DType::kInt64)).shape(), (Shape{0, 4}));
}

TEST(IndexSelectTest, TakesWholeRowsOfAnyRank) {
  const Tensor x = counting({3, 2, 2});
  const Tensor y = index_select(x, 0, Tensor::from_values(Ints{2, 0, 2, 1}, {2, 2}));
  EXPECT_EQ(y.shape(), (Shape{2, 2, 2, 2}));
  EXPECT_EQ(y.to_vector<float>(), (Floats{8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7}));
  EXPECT_EQ(index_select(Tensor::from_values(Ints{7, 8, 9}, {3}), 0, Tensor::from_values(Ints{1}, {})).item(),
            8);
  EXPECT_EQ(index_select(counting({2, 0, 3}), 0, Tensor::from_values(Ints{1, 1, 0}, {3})).shape(),
            (Shape{3, 0, 3}));
  EXPECT_EQ(message_of([&] { index_select(Tensor::scalar(1.0F), 0, Tensor::zeros({1}, DType::kInt64)); }),
            "[index_select] expected x of rank 1 or more but got shape ()");
}

TEST(IndexSelectTest, SendsGradientsBackToTheRows) {
  const Tensor x = counting({3, 1, 2}).set_requires_grad(true);
  backward(index_select(x, 0, Tensor::from_values(Ints{2, 0, 2}, {3})), {.gradient = counting({3, 1, 2})});
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{2, 3, 0, 0, 4, 6}));
}

TEST(IndexSelectTest, PicksAlongAnyAxis) {
  const Tensor x = counting({2, 3, 2}).set_requires_grad(true);
  const Tensor y = index_select(x, 1, Tensor::from_values(Ints{2, 0}, {2}));
  EXPECT_EQ(y.shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(y.to_vector<float>(), (Floats{4, 5, 0, 1, 10, 11, 6, 7}));
  // Indices of any shape stand where the axis was.
  const Tensor z = index_select(x, -1, Tensor::from_values(Ints{1, 1, 0}, {1, 3}));
  EXPECT_EQ(z.shape(), (Shape{2, 3, 1, 3}));
  EXPECT_EQ(z.slice(0, 1, 2).slice(1, 2, 3).to_vector<float>(), (Floats{11, 11, 10}));
  EXPECT_EQ(index_select(x, 2, Tensor::from_values(Ints{1}, {})).shape(), (Shape{2, 3}));
  backward(y, {.gradient = counting({2, 2, 2})});
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{2, 3, 0, 0, 0, 1, 6, 7, 0, 0, 4, 5}));
}

TEST(IndexCopyTest, PutsPartsOfAnyAxisBack) {
  const Tensor indices = Tensor::from_values(Ints{2, 0}, {2});
  for (const int axis : {0, 1, -1}) {
    SCOPED_TRACE(axis);
    const Tensor target = Tensor::zeros({3, 3, 3}),
                 source = affine(index_select(counting({3, 3, 3}), axis, indices), 1, 1);
    index_copy_(target, axis, indices, source);
    EXPECT_EQ(index_select(target, axis, indices).to_vector<float>(), source.to_vector<float>());
    EXPECT_EQ(sum(index_select(target, axis, Tensor::from_values(Ints{1}, {1}))).item(), 0);
  }
  const Tensor numbers = Tensor::from_values(Ints{7, 8, 9}, {3});
  index_copy_(numbers, 0, Tensor::from_values(Ints{1}, {1}), Tensor::from_values(Ints{5}, {1}));
  EXPECT_EQ(numbers.to_vector<int64_t>(), (Ints{7, 5, 9}));
  EXPECT_EQ(message_of([&] {
              index_copy_(Tensor::zeros({3, 2, 2}), 0, indices, Tensor::zeros({2, 2, 3}));
            }),
            "[index_copy_] expected a source with parts of shape (2, 2) but got shape (2, 2, 3)");
}

TEST(OneHotTest, ChecksLabels) {
  const Tensor labels = Tensor::from_values(Ints{2, 0}, {2});
  EXPECT_EQ(one_hot(labels, 3).to_vector<float>(), (Floats{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(one_hot(labels, 3, DType::kInt64).to_vector<int64_t>(), (Ints{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(message_of([&] { one_hot(labels, 2); }),
            "[one_hot] expected indices in [0, 2) but got 2 at position 0");
  EXPECT_EQ(message_of([&] { one_hot(labels, 0); }), "[one_hot] expected at least 1 class but got 0");
  EXPECT_EQ(message_of([&] { one_hot(counting({2}), 3); }),
            "[one_hot] expected labels of dtype int64 but got float32");
}

TEST(OneHotTest, MixesABatchWithItself) {
  // Mixup: the share of each image is that of its class, and cross_entropy takes such targets.
  Generator generator(3);
  const double share = generator.beta(0.4, 0.4);
  const Tensor images = counting({4, 1, 2, 2}), labels = Tensor::from_values(Ints{0, 1, 2, 1}, {4});
  const Tensor order = Tensor::from_values(Ints{3, 2, 1, 0}, {4});
  const auto mix = [&](const Tensor& x) { return x * share + index_select(x, 0, order) * (1 - share); };
  const Tensor mixed = mix(images), targets = mix(one_hot(labels, 3));
  EXPECT_EQ(mixed.shape(), images.shape());
  EXPECT_NEAR(mixed.data<float>()[0], (1 - share) * 12, 1e-5);
  const Floats expected = {static_cast<float>(share), static_cast<float>(1 - share), 0};
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(targets.data<float>()[i], expected[i], 1e-6);
  EXPECT_GT(cross_entropy(counting({4, 3}), targets).item(), 0.0);
}

TEST(EmbeddingTest, AddsRepeatedRowsOfHalfsInFloat32) {
  // 2048 + 1 is not a float16: a running float16 sum would stay at 2048.
  const Tensor dy = Tensor::full({2049, 1}, 1.0, DType::kFloat16);
  const Tensor dweight = vjp::embedding(dy, Tensor::zeros({2049}, DType::kInt64), 2);
  EXPECT_EQ(static_cast<float>(dweight.data<float16>()[0]), 2048.0f);  // 2049, rounded once to even
  const Tensor more =
      vjp::embedding(Tensor::full({2052, 1}, 1.0, DType::kFloat16), Tensor::zeros({2052}, DType::kInt64), 2);
  EXPECT_EQ(static_cast<float>(more.data<float16>()[0]), 2052.0f);
  EXPECT_EQ(static_cast<float>(more.data<float16>()[1]), 0.0f);
}

TEST(GatherTest, PicksIntegersAndChecksIndices) {
  const Tensor x = Tensor::from_values(Ints{1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(gather(x, 1, Tensor::from_values(Ints{2, 0}, {2, 1})).to_vector<int64_t>(), (Ints{3, 4}));
  EXPECT_EQ(gather(x, -2, Tensor::from_values(Ints{1, 0}, {1, 2})).to_vector<int64_t>(), (Ints{4, 2}));
  EXPECT_EQ(message_of([&] {
              gather(x, 0, Tensor::from_values(Ints{0, 2}, {1, 2}));
            }),
            "[gather] expected indices in [0, 2) but got 2 at position 1");
  EXPECT_EQ(message_of([&] {
              gather(x, 0, Tensor::zeros({1, 4}, DType::kInt64));
            }),
            "[gather] expected indices no larger than shape (2, 3) outside of axis 0 but got shape (1, 4)");
  EXPECT_EQ(message_of([&] { gather(x, 0, Tensor::zeros({1}, DType::kInt64)); }),
            "[gather] expected indices of rank 2 but got shape (1,)");
}

}  // namespace
}  // namespace sinter::ops
