#include <algorithm>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/pad/pad.h>

namespace sinter::ops {
namespace {

/// A shape and a padding that fits it.
std::pair<Shape, PadAttributes> make_padding(SampleMaker& maker) {
  const int rank = static_cast<int>(maker.integer(0, 4));
  const Shape shape = maker.shape(rank, 6);
  PadAttributes pad;
  pad.mode = maker.pick({PadMode::kConstant, PadMode::kReflect, PadMode::kReplicate});
  pad.value = pad.mode == PadMode::kConstant ? maker.pick({0.0, -1.5}) : 0.0;
  for (int64_t extent : shape) {
    int64_t most = 3;
    if (pad.mode == PadMode::kReflect) most = std::clamp<int64_t>(extent - 1, 0, 3);
    if (pad.mode == PadMode::kReplicate && extent == 0) most = 0;
    if (maker.chance(0.4)) most = 0;
    pad.padding.push_back({maker.integer(0, most), maker.integer(0, most)});
  }
  return {shape, pad};
}

/// For every element of the padded tensor, the element it repeats, or -1.
std::vector<int64_t> sources(const Shape& shape, const PadAttributes& pad, Shape& padded) {
  std::vector<int64_t> extents;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto& pair = pad.padding[static_cast<size_t>(axis)];
    extents.push_back(shape[axis] + pair[0] + pair[1]);
  }
  padded = Shape(extents);
  std::vector<int64_t> from;
  for (int64_t i = 0; i < padded.numel(); ++i) {
    int64_t place = 0;
    for (int axis = 0; axis < shape.rank() && place >= 0; ++axis) {
      int64_t at = i / padded.stride(axis) % padded[axis] - pad.padding[static_cast<size_t>(axis)][0];
      const int64_t last = shape[axis] - 1;
      if (pad.mode == PadMode::kReflect) {
        at = at < 0 ? -at : at;
        at = at > last ? last - (at - last) : at;
      } else if (pad.mode == PadMode::kReplicate) {
        at = std::clamp<int64_t>(at, 0, last);
      }
      place = at < 0 || at > last ? -1 : place + at * shape.stride(axis);
    }
    from.push_back(place);
  }
  return from;
}

OpSample make_pad(SampleMaker& maker) {
  const auto [shape, pad] = make_padding(maker);
  return {{maker.tensor(shape)}, pad};
}

std::vector<ReferenceTensor> pad_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  const auto& pad = sample.attributes.as<PadAttributes>();
  Shape padded;
  const std::vector<int64_t> from = sources(x.shape, pad, padded);
  ReferenceTensor y(padded);
  for (size_t i = 0; i < from.size(); ++i) y.values[i] = from[i] < 0 ? pad.value : x[from[i]];
  return {y};
}

OpSample make_pad_grad(SampleMaker& maker) {
  const auto [shape, pad] = make_padding(maker);
  Shape padded;
  sources(shape, pad, padded);
  return {{maker.tensor(padded)}, pad};
}

std::vector<ReferenceTensor> pad_grad_reference(const OpSample& sample) {
  const ReferenceTensor dy = reference_of(sample.inputs[0]);
  const auto& pad = sample.attributes.as<PadAttributes>();
  Shape shape = dy.shape, padded;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto& pair = pad.padding[static_cast<size_t>(axis)];
    shape = shape.with(axis, shape[axis] - pair[0] - pair[1]);
  }
  const std::vector<int64_t> from = sources(shape, pad, padded);
  ReferenceTensor dx(shape);
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] >= 0) dx[from[i]] += dy.values[i];
  }
  return {dx};
}

}  // namespace

void register_pad_samples(SampleRegistry& registry);
void register_pad_samples(SampleRegistry& registry) {
  registry.add({.op = "pad", .make = make_pad, .reference = pad_reference});
  registry.add({.op = "pad_grad", .make = make_pad_grad, .reference = pad_grad_reference});
}

}  // namespace sinter::ops
