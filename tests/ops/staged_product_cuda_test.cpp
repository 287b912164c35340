// Products with several vectors on a GPU whose tiles go through shared memory, or whose terms are few: parts,
// turns, hard values, the same bits from run to run. Compared with the CPU in double precision.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include <gtest/gtest.h>

#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/matmul/matmul.h>

#include "ops/gpu_test_support.h"
#include "ops/thin_product_checks.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;

class StagedProductCuda : public GpuTest {};

TEST_F(StagedProductCuda, StagedProductsAgreeWithTheCpu) {
  for (int i = 0; i < 600; ++i) {
    SampleMaker maker(static_cast<uint64_t>(9000 + i), kDTypes[i % 4]);
    // Few terms and few outs, both beyond a tile and a chunk, with tails; whole units of memory and others.
    const int64_t thin = maker.chance(0.5) ? maker.integer(1, 16) : maker.integer(17, 300);
    const int64_t thick = 40000 / thin + maker.integer(0, maker.chance(0.5) ? 40000 / thin : 8);
    const int64_t unit = maker.chance(0.4) ? 8 : 1, other = (thick + unit - 1) / unit * unit;
    Shape matrix = maker.chance(0.5) ? Shape{thin, other} : Shape{other, thin};
    if (maker.chance(0.25)) matrix = matrix.inserted(0, maker.integer(1, 3));
    check_staged(maker, matrix, maker.integer(2, 16), maker.chance(0.5), maker.chance(0.5),
                 maker.integer(0, 3));
    if (HasFatalFailure()) return;
  }
}

TEST_F(StagedProductCuda, StagedTilesThatAreNotCutAgreeWithTheCpu) {
  for (int i = 0; i < 160; ++i) {
    SampleMaker maker(static_cast<uint64_t>(18000 + i), i % 2 == 0 ? DType::kFloat16 : DType::kBFloat16);
    // All widths of a tile, one chunk of terms and several.
    const int64_t terms = maker.integer(65, maker.chance(0.3) ? 1500 : 500), unit = maker.chance(0.5) ? 8 : 1;
    const int64_t outs = (maker.integer(100000, 700000) / terms + unit - 1) / unit * unit;
    const bool is_left = maker.chance(0.5), transpose = maker.chance(0.5);
    Shape matrix = is_left == transpose ? Shape{terms, outs} : Shape{outs, terms};
    if (maker.chance(0.25)) matrix = matrix.inserted(0, maker.integer(1, 3));
    check_staged(maker, matrix, maker.integer(2, 16), is_left, transpose, maker.integer(0, 1) * 3);
    if (HasFatalFailure()) return;
  }
  // Tiles of one chunk, several to a block.
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    SampleMaker maker(36, dtype);
    check_staged(maker, {30001, 120}, 12, false, true, 0);
    check_staged(maker, {30001, 99}, 5, true, false, 1);
    check_staged(maker, {200003, 28}, 5, true, false, 0);
    check_staged(maker, {24, 150000}, 3, true, true, 0);
  }
}

TEST_F(StagedProductCuda, StagedSumsInManyPartsAgreeWithTheCpu) {
  const Shape shapes[] = {{12, 300007}, {300007, 5}, {2, 60000, 32}, {100, 30011}, {30008, 136}, {1, 70001}};
  for (const DType dtype : kDTypes) {
    SampleMaker maker(33, dtype);
    for (const Shape& shape : shapes) {
      for (const int64_t vectors : {2, 5, 10, 16}) {
        for (const bool is_left : {false, true}) {
          for (const bool transpose : {false, true}) {
            check_staged(maker, shape, vectors, is_left, transpose, vectors % 2);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(StagedProductCuda, StagedTilesInTurnAgreeWithTheCpu) {
  // So few terms that a block takes several tiles, with a last one that is shorter.
  for (const DType dtype : kDTypes) {
    SampleMaker maker(34, dtype);
    for (const auto& [outs, terms] : {std::pair<int64_t, int64_t>{1700003, 1}, {900007, 3}, {410008, 21}}) {
      for (const bool transpose : {false, true}) {
        const Shape shape = transpose ? Shape{terms, outs} : Shape{outs, terms};
        for (const auto& [vectors, offset] : {std::pair<int64_t, int64_t>{8, 0}, {3, 1}, {13, 0}}) {
          check_staged(maker, shape, vectors, true, transpose, offset);
          check_staged(maker, shape, vectors, false, !transpose, offset);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(StagedProductCuda, FewTermsAndSeveralVectorsAgreeWithTheCpu) {
  for (int i = 0; i < 120; ++i) {
    SampleMaker maker(static_cast<uint64_t>(15000 + i), kDTypes[i % 3]);
    const int64_t terms = maker.integer(1, 14), vectors = maker.integer(2, 16);
    const int64_t outs = 131072 + maker.integer(0, 3000);
    const bool transpose = maker.chance(0.5);
    Shape matrix = transpose ? Shape{terms, outs} : Shape{outs, terms};
    if (maker.chance(0.25)) matrix = matrix.inserted(0, maker.integer(1, 3));
    check_staged(maker, matrix, vectors, maker.chance(0.5), transpose, maker.chance(0.7) ? 0 : 1);
    if (HasFatalFailure()) return;
  }
  // Warps that take several groups, one after the other.
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    SampleMaker maker(35, dtype);
    for (const int64_t vectors : {7, 12}) {
      check_staged(maker, {1700003, 5}, vectors, true, false, 0);
      check_staged(maker, {5, 1700003}, vectors, false, false, 1);
    }
  }
}

/// Types and numbers of vectors, of which tensor cores multiply some and plain arithmetic others.
const std::pair<DType, int64_t> kBadValueCases[] = {
    {DType::kFloat32, 3},  {DType::kFloat32, 7}, {DType::kFloat32, 12}, {DType::kFloat16, 3},
    {DType::kBFloat16, 3}, {DType::kFloat64, 3}, {DType::kFloat64, 12}};

TEST_F(StagedProductCuda, BadValuesStayInTheirSum) {
  // Shared memory holds what lies beside a row, too: none of it may get into the row's sums.
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [dtype, vectors] : kBadValueCases) {
    for (const int64_t columns : {3, 5, 16, 17, 100, 1000, 7168}) {
      const int64_t rows = std::max<int64_t>(70000 / columns, 24);
      const Tensor host = Tensor::full({rows, columns}, 1.0);
      host.data<float>()[10 * columns] = nan;
      host.data<float>()[21 * columns - 1] = inf;
      const Tensor y =
          matmul(on_gpu(cast(host, dtype)), on_gpu(cast(Tensor::full({columns, vectors}, 0.5), dtype)));
      const std::vector<double> values = as_double(y).to_vector<double>();
      for (int64_t i = 0; i < rows * vectors; ++i) {
        const double value = values[static_cast<size_t>(i)];
        if (i / vectors == 10) {
          EXPECT_TRUE(std::isnan(value));
        } else {
          EXPECT_EQ(value, i / vectors == 20 ? static_cast<double>(inf) : static_cast<double>(columns) / 2)
              << "sum " << i << " of " << columns << " columns";
        }
      }
    }
  }
}

TEST_F(StagedProductCuda, BadValuesStayInTheirColumn) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [dtype, vectors] : kBadValueCases) {
    for (const int64_t rows : {3, 5, 16, 17, 100, 1000}) {
      const int64_t columns = 70000 / rows / 2 * 2;  // pairs of a word, too
      const Tensor host = Tensor::full({rows, columns}, 1.0);
      host.data<float>()[10] = nan;
      host.data<float>()[(rows - 1) * columns + 21] = inf;
      const Tensor x = cast(Tensor::full({rows, vectors}, 0.5), dtype);
      const Tensor y = matmul(on_gpu(cast(host, dtype)), on_gpu(x), {.transpose_a = true});
      const std::vector<double> values = as_double(y).to_vector<double>();
      for (int64_t i = 0; i < columns * vectors; ++i) {
        const double value = values[static_cast<size_t>(i)];
        if (i / vectors == 10) {
          EXPECT_TRUE(std::isnan(value));
        } else {
          EXPECT_EQ(value, i / vectors == 21 ? static_cast<double>(inf) : static_cast<double>(rows) / 2)
              << "sum " << i << " of " << rows << " rows";
        }
      }
    }
  }
}

/// The largest error of a (outs, terms) times x (terms, vectors), as a share of the sum of what the terms are
/// without signs; and that of the first `few` vectors, which another kernel multiplies.
std::pair<double, double> errors_of(const Tensor& a, const Tensor& x, const Tensor& few) {
  const auto without_signs = [](const Tensor& t) {
    const Tensor copy = as_double(t);
    for (double& value : std::span(copy.data<double>(), static_cast<size_t>(copy.numel())))
      value = std::abs(value);
    return copy;
  };
  const auto error = [&](const Tensor& vectors) {
    const auto got = as_double(matmul(on_gpu(a), on_gpu(vectors))).to_vector<double>(),
               want = matmul(as_double(a), as_double(vectors)).to_vector<double>(),
               size = matmul(without_signs(a), without_signs(vectors)).to_vector<double>();
    double largest = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      // Not std::max, which a NaN would not get through.
      if (const double share = std::abs(got[i] - want[i]) / size[i]; !(share <= largest)) largest = share;
    }
    return largest;
  };
  return {error(x), error(few)};
}

TEST_F(StagedProductCuda, ManyVectorsAreAsExactAsFew) {
  // Tensor cores multiply halves of a float32, and cut where float32 rounds.
  struct Range {
    const char* name;
    double low, high, scale, x_scale;
  };
  const Range ranges[] = {{"of both signs", -1, 1, 1, 1},
                          {"positive", 0, 1, 1, 1},
                          {"tiny", 0.5, 1, 1.2e-38, 1e30},
                          {"denormal", -1, 1, 1e-39, 1e30},
                          {"vectors of denormals", -1, 1, 1e30, 1e-39},
                          {"huge", -1, 1, 1e19, 1e12},
                          {"equal", 0.333, 0.333, 1, 1}};
  for (const Range& range : ranges) {
    for (const int64_t terms : {1000, 1 << 20}) {
      SCOPED_TRACE(fmt::format("{} terms, {}", terms, range.name));
      const int64_t outs = terms == 1000 ? 300 : 12;
      SampleMaker maker(36, DType::kFloat64);
      const auto make = [&](const Shape& shape, double scale) {
        const Tensor values = maker.tensor(shape, range.low, range.high);
        for (double& value : std::span(values.data<double>(), static_cast<size_t>(values.numel())))
          value *= scale;
        return cast(values, DType::kFloat32);
      };
      const Tensor a = make({outs, terms}, range.scale);
      const auto [many, few] =
          errors_of(a, make({terms, 12}, range.x_scale), make({terms, 3}, range.x_scale));
      RecordProperty(fmt::format("{}_{}", range.name, terms), fmt::format("{:.2e} few {:.2e}", many, few));
      EXPECT_LE(many, 3 * few + 4e-7) << "few vectors: " << few;
    }
  }
}

TEST_F(StagedProductCuda, HardValuesOfManyVectorsAreMultipliedAsAlways) {
  const float inf = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  const std::pair<float, float> terms[] = {{inf, 1},
                                           {inf, -2},
                                           {inf, 0},
                                           {-inf, 3},
                                           {most, 1},
                                           {most, 2},
                                           {most, -1},
                                           {most, least},
                                           {least, 1},
                                           {least, 0.25F},
                                           {0x1p-100F, 0x1p-45F},
                                           {inf, least},
                                           {0x1p66F, 0x1p60F},
                                           {least, most}};
  constexpr int64_t kTerms = 4000, kVectors = 11, kPlace = 1234;
  const int64_t outs = std::ssize(terms);
  for (const bool is_in_matrix : {true, false}) {
    // Each out has one term that is not zero.
    const Tensor a = Tensor::full({outs, kTerms}, 0.0), x = Tensor::full({kTerms, kVectors}, 0.0);
    for (int64_t i = 0; i < outs; ++i) {
      const auto& [first, second] = terms[i];
      a.data<float>()[i * kTerms + kPlace + i] = is_in_matrix ? first : second;
      for (int64_t v = 0; v < kVectors; ++v)
        x.data<float>()[(kPlace + i) * kVectors + v] = is_in_matrix ? second : first;
    }
    const Tensor y = matmul(on_gpu(a), on_gpu(x)).to(Device::cpu());
    for (int64_t i = 0; i < outs * kVectors; ++i) {
      const int64_t out = i / kVectors;
      // 0 times the infinities of the other outs' terms, where the vectors have them.
      float want = terms[out].first * terms[out].second;
      if (!is_in_matrix) want = std::numeric_limits<float>::quiet_NaN();
      const float got = y.data<float>()[i];
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
          << terms[out].first << " times " << terms[out].second << " is " << got;
    }
  }
}

}  // namespace
}  // namespace sinter::ops
