// Convolutions, pooling, resizing and normalisation of images, in ONNX.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <sinter/nn/export/onnx_translations.h>
#include <sinter/ops/norm/activation.h>
#include <sinter/ops/upsample/upsample.h>

namespace sinter::nn {
namespace {

using Pair = std::array<int64_t, 2>;

OnnxInts ints_of(const Pair& pair) {
  return {pair[0], pair[1]};
}

/// All images are turned before; what could not be is refused.
void check_layout(const OnnxCall& call) {
  if (call.input_rank(0) == 4 && call.attribute<Layout>("layout") == Layout::kNHWC) {
    call.refuse("its images are NHWC");
  }
}

std::vector<OnnxAttribute> conv_attributes(const OnnxCall& call) {
  const Pair &padding = call.attribute<Pair>("padding"), &stride = call.attribute<Pair>("stride"),
             &dilation = call.attribute<Pair>("dilation");
  return {{"kernel_shape", OnnxInts{call.input_extent(1, 2), call.input_extent(1, 3)}},
          {"strides", ints_of(stride)},
          {"pads", OnnxInts{padding[0], padding[1], padding[0], padding[1]}},
          {"dilations", ints_of(dilation)},
          {"group", call.attribute<int64_t>("groups")}};
}

void conv2d(OnnxCall& call) {
  check_layout(call);
  std::vector<std::string> inputs{call.input(0), call.input(1)};
  if (call.has_input(2)) inputs.push_back(call.input(2));
  call.give(call.node("Conv", inputs, conv_attributes(call)));
}

/// The gradient of conv2d is the transposed convolution, with the same filters.
void conv2d_grad_input(OnnxCall& call) {
  check_layout(call);
  const Pair &padding = call.attribute<Pair>("padding"), &stride = call.attribute<Pair>("stride"),
             &dilation = call.attribute<Pair>("dilation"), &size = call.attribute<Pair>("input_size");
  OnnxInts more;
  for (size_t i = 0; i < 2; ++i) {
    const int axis = 2 + static_cast<int>(i);
    const int64_t span = dilation[i] * (call.input_extent(1, axis) - 1) + 1;
    more.push_back(size[i] - ((call.input_extent(0, axis) - 1) * stride[i] + span - 2 * padding[i]));
  }
  std::vector<OnnxAttribute> attributes = conv_attributes(call);
  attributes.emplace_back("output_padding", more);
  call.give(call.node("ConvTranspose", {call.input(0), call.input(1)}, attributes));
}

/// One axis of a pooling.
struct PoolAxis {
  int64_t kernel, stride, dilation, before, after;
  int64_t overhang;  ///< how far the last window reaches beyond the padding behind the image
};

std::array<PoolAxis, 2> pool_axes(const OnnxCall& call) {
  check_layout(call);
  const Pair &kernel = call.attribute<Pair>("kernel"), &stride = call.attribute<Pair>("stride"),
             &dilation = call.attribute<Pair>("dilation"), &before = call.attribute<Pair>("padding"),
             &after = call.attribute<Pair>("padding_after");
  std::array<PoolAxis, 2> axes;
  for (size_t i = 0; i < 2; ++i) {
    const int axis = 2 + static_cast<int>(i);
    PoolAxis& a = axes[i];
    a = {kernel[i], stride[i] == 0 ? kernel[i] : stride[i], dilation[i],
         before[i], after[i] < 0 ? before[i] : after[i],    0};
    const int64_t last = (call.output_extent(axis) - 1) * a.stride + a.dilation * (a.kernel - 1) + 1;
    a.overhang = std::max<int64_t>(last - a.before - call.input_extent(0, axis) - a.after, 0);
  }
  return axes;
}

std::vector<OnnxAttribute> pool_attributes(const std::array<PoolAxis, 2>& axes, const OnnxInts& pads) {
  return {{"kernel_shape", OnnxInts{axes[0].kernel, axes[1].kernel}},
          {"strides", OnnxInts{axes[0].stride, axes[1].stride}},
          {"pads", pads}};
}

/// Padding of both axes, on both sides, with what windows hang over.
OnnxInts all_pads(const std::array<PoolAxis, 2>& axes) {
  return {axes[0].before, axes[1].before, axes[0].after + axes[0].overhang, axes[1].after + axes[1].overhang};
}

/// A border of `value` around the image.
std::string padded(OnnxCall& call, const OnnxInts& pads, double value) {
  const std::string all = call.ints({0, 0, pads[0], pads[1], 0, 0, pads[2], pads[3]});
  return call.node("Pad", {call.input(0), all, call.number(value)}, {{"mode", "constant"}});
}

void max_pool2d(OnnxCall& call) {
  if (call.is_read(1)) call.refuse("the places of the maxima are read");
  const std::array<PoolAxis, 2> axes = pool_axes(call);
  std::string x = call.input(0);
  OnnxInts pads = all_pads(axes);
  // Runtimes take no padding as wide as the kernel, which dilated windows may hang over.
  if (pads[2] >= axes[0].kernel || pads[3] >= axes[1].kernel) {
    x = padded(call, pads, -std::numeric_limits<double>::infinity());
    pads = {0, 0, 0, 0};
  }
  std::vector<OnnxAttribute> attributes = pool_attributes(axes, pads);
  attributes.emplace_back("dilations", OnnxInts{axes[0].dilation, axes[1].dilation});
  call.give(call.node("MaxPool", {x}, attributes));
}

/// Without ceil_mode, for which runtimes compute other divisors than PyTorch does.
void avg_pool2d(OnnxCall& call) {
  const std::array<PoolAxis, 2> axes = pool_axes(call);
  const OnnxInts pads = all_pads(axes);
  const OnnxInts overhang{0, 0, axes[0].overhang, axes[1].overhang};
  const OnnxInts own{pads[0], pads[1], pads[2] - overhang[2], pads[3] - overhang[3]};
  const OnnxInts none{0, 0, 0, 0};
  const auto pool = [&](const std::string& x, const OnnxInts& around, int64_t counted) {
    std::vector<OnnxAttribute> attributes = pool_attributes(axes, around);
    attributes.emplace_back("count_include_pad", counted);
    return call.node("AveragePool", {x}, attributes);
  };
  if (const int64_t divisor = call.attribute<int64_t>("divisor"); divisor != 0) {
    const std::string mean = pool(pads == none ? call.input(0) : padded(call, pads, 0.0), none, 0);
    const double factor = static_cast<double>(axes[0].kernel * axes[1].kernel) / static_cast<double>(divisor);
    call.give(call.node("Mul", {mean, call.number(factor)}));
  } else if (!call.attribute<bool>("count_include_pad")) {
    call.give(pool(call.input(0), pads, 0));
  } else if (overhang == none) {
    call.give(pool(call.input(0), pads, 1));
  } else {  // the padding counts, what windows hang over beyond it does not
    call.give(pool(own == none ? call.input(0) : padded(call, own, 0.0), overhang, 0));
  }
}

void global_avg_pool2d(OnnxCall& call) {
  check_layout(call);
  const std::string pooled = call.node("GlobalAveragePool", {call.input(0)});
  call.give(call.node("Flatten", {pooled}, {{"axis", 1}}));
}

/// (windows, pixels): the weights of pixels in the windows of adaptive pooling.
Tensor averaging_matrix(int64_t windows, int64_t pixels, bool transposed) {
  std::vector<float> weights(static_cast<size_t>(windows * pixels));
  for (int64_t w = 0; w < windows; ++w) {
    const int64_t begin = w * pixels / windows, end = ((w + 1) * pixels + windows - 1) / windows;
    for (int64_t i = begin; i < end; ++i) {
      weights[static_cast<size_t>(transposed ? i * windows + w : w * pixels + i)] =
          1.0f / static_cast<float>(end - begin);
    }
  }
  return Tensor::from_values(weights, transposed ? Shape{pixels, windows} : Shape{windows, pixels});
}

void adaptive_avg_pool2d(OnnxCall& call) {
  check_layout(call);
  const Pair& size = call.attribute<Pair>("size");
  const Pair image{call.input_extent(0, 2), call.input_extent(0, 3)};
  if (size == Pair{1, 1}) {
    call.give(call.node("GlobalAveragePool", {call.input(0)}));
  } else if (image[0] % size[0] == 0 && image[1] % size[1] == 0) {
    const OnnxInts window{image[0] / size[0], image[1] / size[1]};
    call.give(call.node("AveragePool", {call.input(0)}, {{"kernel_shape", window}, {"strides", window}}));
  } else {
    std::string x = call.input(0);
    if (size[1] != image[1]) {
      x = call.node("MatMul", {x, call.initializer(averaging_matrix(size[1], image[1], true))});
    }
    if (size[0] != image[0]) {
      x = call.node("MatMul", {call.initializer(averaging_matrix(size[0], image[0], false)), x});
    }
    call.give(x);
  }
}

/// Windows of one length: the pixels of each, those of shorter ones with their last once more, side by side.
struct EvenWindows {
  EvenWindows(int64_t windows, int64_t count) {
    const auto begin = [&](int64_t o) { return o * count / windows; };
    const auto end = [&](int64_t o) { return ((o + 1) * count + windows - 1) / windows; };
    for (int64_t o = 0; o < windows; ++o) length = std::max(length, end(o) - begin(o));
    for (int64_t o = 0; o < windows; ++o) {
      for (int64_t i = 0; i < length; ++i) pixels.push_back(std::min(begin(o) + i, end(o) - 1));
    }
  }
  int64_t length = 1;
  OnnxInts pixels;
};

void adaptive_max_pool2d(OnnxCall& call) {
  check_layout(call);
  if (call.is_read(1)) call.refuse("the places of the maxima are read");
  const Pair& size = call.attribute<Pair>("size");
  const EvenWindows rows(size[0], call.input_extent(0, 2)), columns(size[1], call.input_extent(0, 3));
  std::string x = call.node("Gather", {call.input(0), call.ints(rows.pixels)}, {{"axis", 2}});
  x = call.node("Gather", {x, call.ints(columns.pixels)}, {{"axis", 3}});
  const OnnxInts window{rows.length, columns.length};
  call.give(call.node("MaxPool", {x}, {{"kernel_shape", window}, {"strides", window}}));
}

/// A scale with which floor(in * scale) is `out`, in float32 as in double: rounding to nearest might give one
/// pixel less.
float resize_scale(int64_t in, int64_t out) {
  float scale = static_cast<float>(static_cast<double>(out) / static_cast<double>(in));
  while (static_cast<double>(in) * static_cast<double>(scale) < static_cast<double>(out)) {
    scale = std::nextafter(scale, std::numeric_limits<float>::infinity());
  }
  return scale;
}

std::string resized(OnnxCall& call, const Pair& image, const Pair& size,
                    const std::vector<OnnxAttribute>& attributes) {
  const std::vector<float> scales{1.0f, 1.0f, resize_scale(image[0], size[0]),
                                  resize_scale(image[1], size[1])};
  return call.node("Resize", {call.input(0), "", call.initializer(Tensor::from_values(scales, {4}))},
                   attributes);
}

/// The rows or columns that are nearest.
std::string picked(OnnxCall& call, const std::string& x, int64_t axis, int64_t in, int64_t out) {
  if (in == out) return x;
  OnnxInts indices;
  for (int64_t o = 0; o < out; ++o) indices.push_back(o * in / out);
  return call.node("Gather", {x, call.ints(indices)}, {{"axis", axis}});
}

void upsample(OnnxCall& call) {
  check_layout(call);
  const Pair& size = call.attribute<Pair>("size");
  const Pair image{call.input_extent(0, 2), call.input_extent(0, 3)};
  if (call.attribute<ops::UpsampleMode>("mode") == ops::UpsampleMode::kBilinear) {
    const char* const positions = call.attribute<bool>("align_corners") ? "align_corners" : "half_pixel";
    call.give(
        resized(call, image, size, {{"mode", "linear"}, {"coordinate_transformation_mode", positions}}));
  } else if (size[0] % image[0] == 0 && size[1] % image[1] == 0) {
    call.give(resized(
        call, image, size,
        {{"mode", "nearest"}, {"coordinate_transformation_mode", "asymmetric"}, {"nearest_mode", "floor"}}));
  } else {
    call.give(picked(call, picked(call, call.input(0), 2, image[0], size[0]), 3, image[1], size[1]));
  }
}

// ---- norms, and PReLU

/// Where the parameters of one normalisation begin among the inputs of an op: weight, bias, and two of
/// statistics.
struct NormInputs {
  size_t x, weight;
};

void check_norm(const OnnxCall& call, std::initializer_list<size_t> statistics) {
  if (call.attribute<bool>("training")) call.refuse("it computes the statistics of the batch");
  for (const size_t output : statistics) {
    if (call.is_read(output)) call.refuse("the statistics are read");
  }
}

/// The parameter, or as many `value`s as there are channels.
std::string parameter(OnnxCall& call, size_t i, int64_t channels, double value) {
  return call.has_input(i) ? call.input(i) : call.initializer(Tensor::full({channels}, value));
}

std::string batch_normalized(OnnxCall& call, const NormInputs& in) {
  const int64_t channels = call.input_extent(in.x, 1);
  return call.node(
      "BatchNormalization",
      {call.input(in.x), parameter(call, in.weight, channels, 1.0),
       parameter(call, in.weight + 1, channels, 0.0), call.input(in.weight + 2), call.input(in.weight + 3)},
      {{"epsilon", call.attribute<double>("epsilon")}});
}

void batch_norm(OnnxCall& call) {
  check_layout(call);
  check_norm(call, {1, 2});
  call.give(batch_normalized(call, {0, 1}));
}

/// With slopes for the channels, axis 1.
std::string activated(OnnxCall& call, const std::string& x, size_t alpha) {
  switch (call.attribute<ops::fused::Activation>("activation")) {
    case ops::fused::Activation::kNone:
      return x;
    case ops::fused::Activation::kRelu:
      return call.node("Relu", {x});
    case ops::fused::Activation::kPRelu:
      return call.node("PRelu", {x, call.channels(alpha, call.input_rank(0))});
  }
  call.refuse("its activation is unknown");
}

/// (x - mean) inv_std weight + bias, where mean and inv_std begin at input `statistics`.
std::string normalized(OnnxCall& call, const NormInputs& in, size_t statistics) {
  const int rank = call.input_rank(0);
  std::string y = call.node("Sub", {call.input(in.x), call.channels(statistics, rank)});
  y = call.node("Mul", {y, call.channels(statistics + 1, rank)});
  if (call.has_input(in.weight)) y = call.node("Mul", {y, call.channels(in.weight, rank)});
  if (call.has_input(in.weight + 1)) y = call.node("Add", {y, call.channels(in.weight + 1, rank)});
  return y;
}

// x, weight, bias, running_mean, running_var, sums, alpha, addend, the addend's likewise, and given mean and
// inv_std of both.
void batch_norm_act(OnnxCall& call) {
  check_layout(call);
  check_norm(call, {1, 2, 3, 4, 5});
  constexpr size_t kAlpha = 6, kAddend = 7, kMean = 13, kAddendMean = 15;
  const auto norm = [&](const NormInputs& in, size_t given) {
    return call.has_input(given) ? normalized(call, in, given) : batch_normalized(call, in);
  };
  std::string y = norm({0, 1}, kMean);
  if (call.has_input(kAddend)) {
    const bool too = call.attribute<bool>("normalize_addend");
    y = call.node("Add", {y, too ? norm({kAddend, kAddend + 1}, kAddendMean) : call.input(kAddend)});
  }
  call.give(activated(call, y, kAlpha));
}

void prelu(OnnxCall& call) {
  const int rank = call.input_rank(0);
  const bool is_last = rank <= 2 || call.attribute<Layout>("layout") == Layout::kNHWC;
  const bool is_one = call.input_extent(1, 0) == 1;
  call.give(call.node("PRelu", {call.input(0), is_last || is_one ? call.input(1) : call.channels(1, rank)}));
}

}  // namespace

void add_image_translations(OnnxTable& table) {
  table["adaptive_avg_pool2d"] = adaptive_avg_pool2d;
  table["adaptive_max_pool2d"] = adaptive_max_pool2d;
  table["avg_pool2d"] = avg_pool2d;
  table["batch_norm"] = batch_norm;
  table["batch_norm_act"] = batch_norm_act;
  table["conv2d"] = conv2d;
  table["conv2d_grad_input"] = conv2d_grad_input;
  table["global_avg_pool2d"] = global_avg_pool2d;
  table["max_pool2d"] = max_pool2d;
  table["prelu"] = prelu;
  table["upsample"] = upsample;
}

}  // namespace sinter::nn
