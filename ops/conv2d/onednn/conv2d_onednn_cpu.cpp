// Convolutions by oneDNN: in bfloat16 on processors with matrix units for it (AMX), in float32 on those with
// AVX-512.
//
// oneDNN has threads of its own, which would spin beside Sinter's, and sums a filter's gradient in an order
// that depends on how many there are. So each of its primitives runs on the thread that calls it, on a part
// of the batch, and Sinter's threads share the parts. These depend on the geometry alone, and so do the
// results. Filters are brought to the order that a primitive wants once a call; a filter's gradient has a
// partial sum in float32 for each part, and they are added up in order. That of 1x1 filters in bfloat16 is a
// matrix product, which took a half to a fifth of the convolution's time.
#include <sinter/ops/conv2d/conv2d_kernels_cpu.h>

#ifdef SINTER_WITH_ONEDNN

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>

#include <oneapi/dnnl/dnnl.hpp>

#include <sinter/core/runtime/plan_store.h>
#include <sinter/core/runtime/thread_pool.h>

// Of the OpenMP that oneDNN runs on, whose header comes with the compiler's -fopenmp only.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int count);
}

namespace sinter::ops {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;

constexpr int64_t kMostParts = 16;
constexpr int64_t kPartPixels = 784;                   // of y: fewer would not repay another call
constexpr int64_t kChunkPixels = 1024;                 // fewer would not repay another partial sum
constexpr int64_t kPartialsBytes = int64_t{64} << 20;  // all partial sums together
constexpr size_t kPlans = 1024;

/// While one lives, oneDNN makes and runs primitives for the calling thread alone.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = omp_get_max_threads();
};

/// It is never destroyed: threads may still compute while the process ends.
const dnnl::engine& engine() {
  static const auto* const made = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *made;
}

size_t aligned(size_t bytes) {
  constexpr size_t alignment = 256;
  return (bytes + alignment - 1) / alignment * alignment;
}

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::kFloat32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::primitive_attr own_scratch() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// ---- a primitive

using Arguments = std::unordered_map<int, dnnl::memory>;

dnnl::memory at(const Desc& desc, const void* data) {
  return {desc, engine(), const_cast<void*>(data)};
}

void execute(const dnnl::primitive& primitive, Arguments arguments) {
  dnnl::stream stream(engine());
  primitive.execute(stream, arguments);
  stream.wait();
}

/// The convolution of some images.
struct Piece {
  dnnl::primitive primitive;
  Desc x, weight, y, bias, scratch;
};

/// Makes pieces of one problem.
struct Maker {
  const Conv2dGeometry& g;
  Conv2dPass pass;
  DType dtype;
  bool has_bias;

  Desc image(int64_t images, int64_t channels, int64_t height, int64_t width) const {
    const auto tag =
        g.layout == Layout::kNCHW ? dnnl::memory::format_tag::nchw : dnnl::memory::format_tag::nhwc;
    return {Dims{images, channels, height, width}, type_of(dtype), tag};
  }
  Dims weight_dims() const {
    Dims dims{g.group_out(), g.group_in(), g.height.kernel, g.width.kernel};
    if (g.groups > 1) dims.insert(dims.begin(), g.groups);
    return dims;
  }
  /// The filters as Sinter has them.
  Desc plain_weight() const {
    const int64_t out = g.group_in() * g.taps();
    Dims strides = g.layout == Layout::kNCHW ? Dims{out, g.taps(), g.width.kernel, 1}
                                             : Dims{out, 1, g.width.kernel * g.group_in(), g.group_in()};
    if (g.groups > 1) strides.insert(strides.begin(), g.group_out() * out);
    return {weight_dims(), type_of(dtype), strides};
  }

  /// Whether the filters' gradient is one product of the pixels of dy and x, (O, P) x (P, C).
  bool is_product() const {
    return pass == Conv2dPass::kGradWeight && dtype == DType::kBFloat16 && g.layout == Layout::kNHWC &&
           g.groups == 1 && g.taps() == 1 && g.height.padding == 0 && g.width.padding == 0;
  }
  Piece make_product(int64_t images) const {
    const int64_t pixels = images * g.out_pixels(), in = g.in_channels, out = g.out_channels;
    const auto sums = dnnl::memory::data_type::f32;
    const Desc y(Dims{out, pixels}, type_of(dtype), Dims{1, out});
    const Desc x(Dims{pixels, in}, type_of(dtype), Dims{in, 1});
    const Desc weight(Dims{out, in}, sums, Dims{in, 1});
    const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(y, x, weight), own_scratch(), engine());
    return piece<dnnl::matmul>(made, x, weight, y, Desc());
  }

  /// Throws dnnl::error for what oneDNN cannot do. The filters are in `weight_order`, or in the order that
  /// suits best.
  Piece make(int64_t images, const Desc* weight_order) const {
    const bool is_gradient = pass == Conv2dPass::kGradWeight;
    const auto weight_type = is_gradient ? dnnl::memory::data_type::f32 : type_of(dtype);
    const Desc x = image(images, g.in_channels, g.height.input, g.width.input);
    const Desc y = image(images, g.out_channels, g.height.output, g.width.output);
    const auto any = dnnl::memory::format_tag::any;
    const Desc weight = weight_order != nullptr ? *weight_order : Desc(weight_dims(), weight_type, any);
    const Desc bias = has_bias ? Desc({g.out_channels}, type_of(dtype), dnnl::memory::format_tag::x) : Desc();
    const Dims stride{g.height.stride, g.width.stride}, padding{g.height.padding, g.width.padding},
        gaps{g.height.dilation - 1, g.width.dilation - 1};
    const dnnl::primitive_attr attributes = own_scratch();
    const auto kind = dnnl::algorithm::convolution_direct;
    using Forward = dnnl::convolution_forward;
    // Gradients take a description of the forward pass as a hint.
    const Desc forward_weight =
        pass == Conv2dPass::kForward ? weight : Desc(weight_dims(), type_of(dtype), any);
    const Forward::primitive_desc forward(
        Forward::desc(dnnl::prop_kind::forward_training, kind, x, forward_weight, bias, y, stride, gaps,
                      padding, padding),
        attributes, engine());
    if (pass == Conv2dPass::kForward) return piece<Forward>(forward, x, forward.weights_desc(), y, bias);
    if (pass == Conv2dPass::kGradInput) {
      using Backward = dnnl::convolution_backward_data;
      const Backward::primitive_desc made(Backward::desc(kind, x, weight, y, stride, gaps, padding, padding),
                                          attributes, engine(), forward);
      return piece<Backward>(made, x, made.weights_desc(), y, bias);
    }
    using Backward = dnnl::convolution_backward_weights;
    const Backward::primitive_desc made(Backward::desc(kind, x, weight, y, stride, gaps, padding, padding),
                                        attributes, engine(), forward);
    return piece<Backward>(made, x, made.diff_weights_desc(), y, bias);
  }

 private:
  template <class Primitive, class Made>
  Piece piece(const Made& made, const Desc& x, const Desc& weight, const Desc& y, const Desc& bias) const {
    // Its plain loops are there for checks.
    if (std::string_view(made.impl_info_str()).find("ref") != std::string_view::npos)
      throw dnnl::error(dnnl_unimplemented, "only plain loops");
    return {Primitive(made), x, weight, y, bias, made.scratchpad_desc()};
  }
};

// ---- the plan

/// Images of a part of the batch.
int64_t images_of(const Conv2dGeometry& g, Conv2dPass pass) {
  const int64_t pixels = g.out_pixels();
  if (pass != Conv2dPass::kGradWeight)
    return std::clamp<int64_t>((kPartPixels + pixels - 1) / pixels, 1,
                               std::max<int64_t>(1, g.batch / kMostParts));
  const int64_t partial = g.weight_count() * static_cast<int64_t>(sizeof(float));
  const int64_t chunks = std::clamp<int64_t>(
      std::min({g.batch * pixels / kChunkPixels, kPartialsBytes / partial, g.batch}), 2, kMostParts);
  const auto even = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(chunks)));
  return (g.batch + even - 1) / even;
}

class Plan : public Prepared {
 public:
  Plan(const Maker& maker, int threads)
      : pass_(maker.pass),
        batch_(maker.g.batch),
        images_(images_of(maker.g, maker.pass)),
        parts_((batch_ + images_ - 1) / images_),
        slots_(std::clamp<int64_t>(threads, 1, parts_)),
        plain_(maker.plain_weight()),
        is_product_(maker.is_product()),
        g_(maker.g),
        whole_(is_product_ ? maker.make_product(images_) : maker.make(images_, nullptr)) {
    if (const int64_t rest = batch_ % images_; rest != 0)
      rest_ = is_product_ ? maker.make_product(rest) : maker.make(rest, &whole_.weight);
    const bool is_gradient = pass_ == Conv2dPass::kGradWeight;
    packed_ = is_product_ ? whole_.weight.reshape(plain_.dims()) : whole_.weight;
    order_ = dnnl::reorder(dnnl::reorder::primitive_desc(engine(), is_gradient ? packed_ : plain_, engine(),
                                                         is_gradient ? plain_ : packed_));
    const auto element = static_cast<int64_t>(size_of(maker.dtype));
    x_image_ = static_cast<size_t>(g_.in_channels * g_.in_pixels() * element);
    y_image_ = static_cast<size_t>(g_.out_channels * g_.out_pixels() * element);
    weight_bytes_ = aligned(whole_.weight.get_size());
    weights_ = is_gradient ? parts_ : 1;
    slot_bytes_ = aligned(whole_.scratch.get_size());
    if (rest_) slot_bytes_ = std::max(slot_bytes_, aligned(rest_->scratch.get_size()));
    if (gathers()) {
      gathered_at_ = slot_bytes_;
      slot_bytes_ += aligned(whole_.x.get_size());
    }
  }

  size_t workspace_bytes() const override {
    return static_cast<size_t>(weights_) * weight_bytes_ + static_cast<size_t>(slots_) * slot_bytes_;
  }

  void run(const KernelContext& context) const {
    auto* const workspace = context.workspace<std::byte>();
    if (pass_ != Conv2dPass::kGradWeight) {
      change_order(plain_, context.input(1).data, packed_, workspace);
      run_parts(workspace, [&](const Piece& piece, int64_t part, std::byte*) {
        const bool forward = pass_ == Conv2dPass::kForward;
        const auto* const from = context.input(0).as<const std::byte>();
        auto* const to = context.output(0).as<std::byte>();
        Arguments arguments{{forward ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST,
                             at(forward ? piece.x : piece.y, from + offset(part, forward))},
                            {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_SRC,
                             at(forward ? piece.y : piece.x, to + offset(part, !forward))},
                            {DNNL_ARG_WEIGHTS, at(piece.weight, workspace)}};
        if (forward && context.has_input(2))
          arguments.emplace(DNNL_ARG_BIAS, at(piece.bias, context.input(2).data));
        return arguments;
      });
      return;
    }
    run_parts(workspace, [&](const Piece& piece, int64_t part, std::byte* scratch) {
      const std::byte* x = context.input(0).as<const std::byte>() + offset(part, true);
      const auto* const dy = context.input(1).as<const std::byte>() + offset(part, false);
      if (gathers()) x = gather(x, scratch + gathered_at_, std::min(images_, batch_ - part * images_));
      return Arguments{{is_product_ ? DNNL_ARG_WEIGHTS : DNNL_ARG_SRC, at(piece.x, x)},
                       {is_product_ ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST, at(piece.y, dy)},
                       {is_product_ ? DNNL_ARG_DST : DNNL_ARG_DIFF_WEIGHTS,
                        at(piece.weight, workspace + partial_offset(part))}};
    });
    add_partials(workspace);
    change_order(packed_, workspace, plain_, context.output(0).data);
  }

 private:
  /// Of a part's images, in x or y.
  size_t offset(int64_t part, bool in_x) const {
    return static_cast<size_t>(part * images_) * (in_x ? x_image_ : y_image_);
  }
  size_t partial_offset(int64_t part) const { return static_cast<size_t>(part) * weight_bytes_; }
  size_t scratch_offset(int64_t slot) const {
    return static_cast<size_t>(weights_) * weight_bytes_ + static_cast<size_t>(slot) * slot_bytes_;
  }

  /// Whether 1x1 filters read only some pixels of x, which are brought together then.
  bool gathers() const { return is_product_ && !g_.is_pointwise(); }
  const std::byte* gather(const std::byte* x, std::byte* to, int64_t images) const {
    const auto pixel = x_image_ / static_cast<size_t>(g_.in_pixels());
    std::byte* next = to;
    for (int64_t image = 0; image < images; ++image, x += x_image_) {
      for (int64_t i = 0; i < g_.height.output; ++i) {
        for (int64_t j = 0; j < g_.width.output; ++j, next += pixel) {
          const int64_t from = i * g_.height.stride * g_.width.input + j * g_.width.stride;
          std::memcpy(next, x + static_cast<size_t>(from) * pixel, pixel);
        }
      }
    }
    return to;
  }

  /// arguments_of(piece, part, the slot's scratch): what a part works on, but for oneDNN's scratch.
  template <class ArgumentsOf>
  void run_parts(std::byte* workspace, const ArgumentsOf& arguments_of) const {
    parallel_for(slots_, 1, [&](int64_t first, int64_t last) {
      const OneThread guard;
      for (int64_t slot = first; slot < last; ++slot) {
        for (int64_t part = parts_ * slot / slots_; part < parts_ * (slot + 1) / slots_; ++part) {
          const Piece& piece = rest_ && part == parts_ - 1 ? *rest_ : whole_;
          std::byte* const scratch = workspace + scratch_offset(slot);
          Arguments arguments = arguments_of(piece, part, scratch);
          arguments.emplace(DNNL_ARG_SCRATCHPAD, at(piece.scratch, scratch));
          execute(piece.primitive, std::move(arguments));
        }
      }
    });
  }

  void change_order(const Desc& from, const void* source, const Desc& to, void* target) const {
    const OneThread guard;
    execute(order_, {{DNNL_ARG_FROM, at(from, source)}, {DNNL_ARG_TO, at(to, target)}});
  }

  void add_partials(std::byte* workspace) const {
    constexpr int64_t kGrain = 16384;
    auto* const sums = reinterpret_cast<float*>(workspace);
    const auto count = static_cast<int64_t>(whole_.weight.get_size() / sizeof(float));
    const auto distance = static_cast<int64_t>(weight_bytes_ / sizeof(float));
    parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t part = 1; part < parts_; ++part) {
        const float* const partial = sums + part * distance;
        for (int64_t i = begin; i < end; ++i) sums[i] += partial[i];
      }
    });
  }

  Conv2dPass pass_;
  int64_t batch_, images_, parts_, slots_;
  Desc plain_;  // the order of the filters as Sinter has them
  bool is_product_;
  Conv2dGeometry g_;
  Piece whole_;
  std::optional<Piece> rest_;
  Desc packed_;            // and as the pieces do
  dnnl::primitive order_;  // from one to the other
  size_t x_image_ = 0, y_image_ = 0, weight_bytes_ = 0, slot_bytes_ = 0;
  size_t gathered_at_ = 0;  // of a slot
  int64_t weights_ = 1;     // copies of the filters in scratch
};

using Key = std::vector<int64_t>;

struct Hash {
  size_t operator()(const Key& key) const {
    size_t hash = 0;
    for (const int64_t word : key) hash = hash * 0x100000001B3U + static_cast<size_t>(word);
    return hash;
  }
};

Key key_of(const Maker& maker, int threads) {
  const Conv2dGeometry& g = maker.g;
  Key key{static_cast<int64_t>(maker.pass),
          static_cast<int64_t>(maker.dtype),
          static_cast<int64_t>(g.layout),
          maker.has_bias,
          threads,
          g.batch,
          g.in_channels,
          g.out_channels,
          g.groups};
  for (const Conv2dAxis& axis : {g.height, g.width})
    key.insert(key.end(), {axis.input, axis.kernel, axis.output, axis.stride, axis.padding, axis.dilation});
  return key;
}

/// Whether the filters' gradient along an axis is one that oneDNN 2.6 can be trusted with: of others, found
/// by tests on random shapes, some came out wrong, and with taps that read no pixel some were not written.
bool is_usual(const Conv2dAxis& axis) {
  if (axis.stride > 2 || axis.dilation > 1 || axis.padding > axis.kernel / 2) return false;
  for (int64_t tap = 0; tap < axis.kernel; ++tap) {
    // The first target whose pixel is not before the image has the least.
    const int64_t shift = tap - axis.padding;
    const int64_t target = shift >= 0 ? 0 : (-shift + axis.stride - 1) / axis.stride;
    if (target >= axis.output || target * axis.stride + shift >= axis.input) return false;
  }
  return true;
}

bool has(dnnl::cpu_isa isa) {
  static const auto mine = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (mine & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
}

}  // namespace

// Not by the number of threads: results must not depend on it, and those of kernels differ.
bool conv2d_onednn_can_run(const Conv2dGeometry& g, Conv2dPass pass, DType dtype) {
  if (g.batch == 0 || g.in_pixels() == 0 || g.in_channels == 0 || g.out_channels == 0) return false;
  const bool usual = g.groups == 1 && is_usual(g.height) && is_usual(g.width);
  if (pass == Conv2dPass::kGradWeight && !usual) return false;
  if (dtype == DType::kBFloat16) return has(dnnl::cpu_isa::avx512_core_amx);
  constexpr int64_t kLeastImages = 8;  // fewer would leave threads without a part
  if (dtype != DType::kFloat32 || !has(dnnl::cpu_isa::avx512_core)) return false;
  if (g.layout != Layout::kNHWC || g.groups > 1 || g.batch < kLeastImages) return false;
  if (!conv2d_winograd_can_run(g) || !conv2d_winograd_pays(g, pass, dtype)) return true;
  // Winograd's convolution has fewer products, and takes many tiles to repay transforming many filters.
  const int64_t filters_per_tile = pass == Conv2dPass::kGradWeight ? 32 : 64;
  return conv2d_winograd_tiles(g) < g.in_channels * g.out_channels / filters_per_tile;
}

std::shared_ptr<const Prepared> prepare_conv2d_onednn(const Conv2dGeometry& geometry, Conv2dPass pass,
                                                      DType dtype, bool has_bias, int threads) {
  static auto* const plans = new PlanStore<Key, Plan, Hash>();  // as the engine
  const Maker maker{geometry, pass, dtype, has_bias};
  const Key key = key_of(maker, threads);
  if (const auto found = plans->find(key)) return *found;
  const OneThread guard;
  std::shared_ptr<const Plan> made;
  try {
    made = std::make_shared<const Plan>(maker, threads);
  } catch (const dnnl::error&) {  // there is another kernel
  }
  return plans->add(key, std::move(made), kPlans);
}

void run_conv2d_onednn(const KernelContext& context) {
  context.prepared<Plan>().run(context);
}

}  // namespace sinter::ops

#else

namespace sinter::ops {

bool conv2d_onednn_can_run(const Conv2dGeometry&, Conv2dPass, DType) {
  return false;
}

std::shared_ptr<const Prepared> prepare_conv2d_onednn(const Conv2dGeometry&, Conv2dPass, DType, bool, int) {
  return nullptr;
}

void run_conv2d_onednn(const KernelContext&) {}

}  // namespace sinter::ops

#endif
