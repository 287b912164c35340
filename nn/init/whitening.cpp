#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <vector>

#include <Eigen/Eigenvalues>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/init/whitening.h>

namespace sinter::nn::init {
namespace {

constexpr int64_t kMostValues = 1024;  // of a patch: the eigenvectors take their cube
constexpr int64_t kMostParts = 64;     // of the sum, whatever the number of threads
constexpr int64_t kLanes = 8;          // independent sums, which the compiler puts into one register

using Matrix = Eigen::MatrixXd;

/// Where the patches of one image lie: value i of the patch at (y, x) is image[offsets[i] + y * row + x].
struct Patches {
  std::vector<int64_t> offsets;
  int64_t rows = 0, columns = 0;  // how many patches there are
  int64_t row = 0;                // the width of the image
};

Patches patches_of(const Shape& images, int64_t height, int64_t width) {
  Patches patches{
      .offsets = {}, .rows = images[2] - height + 1, .columns = images[3] - width + 1, .row = images[3]};
  for (int64_t c = 0; c < images[1]; ++c) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) patches.offsets.push_back((c * images[2] + y) * images[3] + x);
    }
  }
  return patches;
}

/// The sum of a * b over all patches of one image, for two of their values.
double sum_of_products(const float* a, const float* b, const Patches& patches) {
  float lanes[kLanes] = {};
  double rest = 0.0;
  for (int64_t y = 0; y < patches.rows; ++y, a += patches.row, b += patches.row) {
    int64_t x = 0;
    for (; x + kLanes <= patches.columns; x += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[x + lane] * b[x + lane];
    }
    for (; x < patches.columns; ++x) rest += static_cast<double>(a[x] * b[x]);
  }
  return std::accumulate(std::begin(lanes), std::end(lanes), rest);
}

void add_products(const float* image, const Patches& patches, Matrix& sum) {
  for (Eigen::Index j = 0; j < sum.cols(); ++j) {
    const float* const b = image + patches.offsets[static_cast<size_t>(j)];
    for (Eigen::Index i = j; i < sum.rows(); ++i)
      sum(i, j) += sum_of_products(image + patches.offsets[static_cast<size_t>(i)], b, patches);
  }
}

/// The mean of p p^T over all patches p: its lower half, and zeros.
Matrix second_moments(const Tensor& images, const Patches& patches) {
  const int64_t count = images.shape()[0], parts = std::min(count, kMostParts);
  const int64_t image = images.shape().count(1, 4);
  const float* const values = images.data<float>();
  const auto extent = static_cast<Eigen::Index>(patches.offsets.size());
  std::vector<Matrix> sums(static_cast<size_t>(parts), Matrix::Zero(extent, extent));
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      for (int64_t n = count * part / parts; n < count * (part + 1) / parts; ++n)
        add_products(values + n * image, patches, sums[static_cast<size_t>(part)]);
    }
  });
  Matrix sum = Matrix::Zero(extent, extent);
  for (const Matrix& part : sums) sum += part;
  return sum / static_cast<double>(count * patches.rows * patches.columns);
}

}  // namespace

Tensor whitening_filters(const Tensor& images, int64_t height, int64_t width, double epsilon) {
  SINTER_CHECK(
      images.defined() && images.rank() == 4 && images.dtype() == DType::kFloat32 && images.device().is_cpu(),
      "[whitening] expected images float32 (N, C, H, W) on the CPU but got {}",
      images.defined() ? sinter::to_string(images.spec()) : "none");
  const Shape& shape = images.shape();
  SINTER_CHECK(height > 0 && width > 0 && height <= shape[2] && width <= shape[3] && shape.numel() > 0,
               "[whitening] expected images with patches of {} x {} but got shape {}", height, width, shape);
  SINTER_CHECK(epsilon > 0.0 && std::isfinite(epsilon), "[whitening] expected an epsilon > 0 but got {}",
               epsilon);
  SINTER_CHECK(
      shape[1] <= kMostValues && height * width <= kMostValues && shape[1] * height * width <= kMostValues,
      "[whitening] expected patches of at most {} values but got {} x {} x {}", kMostValues, shape[1], height,
      width);
  const Matrix moments = second_moments(images, patches_of(shape, height, width));
  SINTER_CHECK(moments.allFinite(), "[whitening] expected images of finite values");
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(moments);  // reads the lower half; ascending
  SINTER_CHECK(solver.info() == Eigen::Success, "[whitening] the eigenvectors of the patches were not found");

  const Tensor filters = Tensor::empty({moments.rows(), shape[1], height, width});
  float* filter = filters.data<float>();
  for (Eigen::Index k = moments.rows() - 1; k >= 0; --k) {
    const auto vector = solver.eigenvectors().col(k);
    Eigen::Index largest = 0;
    vector.cwiseAbs().maxCoeff(&largest);
    const double scale =
        std::copysign(1.0 / std::sqrt(std::max(solver.eigenvalues()[k], 0.0) + epsilon), vector[largest]);
    for (const double value : vector) *filter++ = static_cast<float>(value * scale);
  }
  return filters;
}

}  // namespace sinter::nn::init
