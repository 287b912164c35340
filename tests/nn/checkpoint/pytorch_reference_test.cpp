// Files as PyTorch writes them, stored by tests/reference/generate_pytorch.py: usual ones and odd ones.
#include <algorithm>
#include <string>

#include <common/error_message.h>
#include <common/project_folder.h>
#include <common/temporary_folder.h>
#include <gtest/gtest.h>
#include <nn/checkpoint/checkpoint_samples.h>
#include <nn/checkpoint/pytorch_samples.h>

#include <sinter/nn/checkpoint/weights_file.h>
#include <sinter/nn/models/resnet.h>

namespace sinter::nn {
namespace {

using sinter::testing::expect_same;
using sinter::testing::message_of;

std::filesystem::path stored(const std::string& name) {
  return test::test_data() / "pytorch" / name;
}

/// What PyTorch had saved: the tensors below a name.
NamedTensors expected_of(const std::string& name) {
  static const NamedTensors all = read_safetensors(stored("expected.safetensors")).tensors;
  NamedTensors tensors;
  for (const auto& [path, tensor] : all) {
    if (path.starts_with(name + "/")) tensors[path.substr(name.size() + 1)] = tensor;
  }
  return tensors;
}

/// The error, of exactly type E, without the path.
template <class E>
std::string refusal(const std::string& name, const std::string& key = "") {
  const std::string text = message_of<E>([&] { read_pytorch(stored(name), {.key = key}); });
  const std::string start = "[pytorch] " + stored(name).string() + ": ";
  return text.starts_with(start) ? text.substr(start.size()) : text;
}

TEST(PytorchReference, EveryVersionOfAStateDictHasItsValues) {
  for (const std::string name :
       {"state.pth", "legacy.pth", "protocol_4.pth", "protocol_5.pth", "odd name.v1.pth", "no_checksums.pth",
        "buffer.pth", "skipped_data.pth", "views.pth", "views_legacy.pth", "dtypes.pth", "tied.pth",
        "parameter_state.pth", "tensor_state.pth", "extra_state.pth"}) {
    SCOPED_TRACE(name);
    const PytorchFile file = read_pytorch(stored(name));
    ASSERT_FALSE(expected_of(name).empty());
    expect_same(file.tensors, expected_of(name));
    EXPECT_EQ(file.key, "");
    EXPECT_EQ(file.prefix, "");
    EXPECT_EQ(file.skipped.size(), name == "extra_state.pth" ? 2U : 0U);
  }
  EXPECT_TRUE(read_pytorch(stored("empty.pth")).tensors.empty());
}

TEST(PytorchReference, CheckpointsGiveTheirStateDict) {
  for (const std::string name : {"checkpoint.pth", "checkpoint_legacy.pth"}) {
    SCOPED_TRACE(name);
    const PytorchFile file = read_pytorch(stored(name));
    expect_same(file.tensors, expected_of(name));
    EXPECT_EQ(file.key, "state_dict");
    EXPECT_EQ(file.prefix, "module.");
  }
  const PytorchFile file = read_pytorch(stored("optimizer.pth"));
  expect_same(file.tensors, expected_of("optimizer.pth"));
  EXPECT_EQ(file.key, "model");
}

TEST(PytorchReference, AKeyChoosesAmongDicts) {
  const std::string places = R"("model", "model_ema", "nested.deep")";
  EXPECT_EQ(refusal<InvalidArgument>("two.pth"), "expected one dict of weights but there are " + places +
                                                     "; choose one by its key, as sinter_convert --key does");
  for (const std::string key : {"model", "model_ema", "nested.deep"}) {
    const PytorchFile file = read_pytorch(stored("two.pth"), {.key = key});
    expect_same(file.tensors, {{"w", expected_of("two.pth").at(key)}});
    EXPECT_EQ(file.key, key);
  }
  EXPECT_EQ(refusal<InvalidArgument>("two.pth", "deep"),
            R"(there is nothing at the key "deep"; dicts with tensors are at )" + places);
  EXPECT_EQ(refusal<InvalidArgument>("two.pth", "nested"),
            R"(expected a dict with tensors at the key "nested")");
  EXPECT_EQ(refusal<InvalidArgument>("two.pth", "model.w"),
            R"(expected a dict at the key "model.w" but got a tensor)");
}

TEST(PytorchReference, TiedWeightsShareMemory) {
  const PytorchFile file = read_pytorch(stored("tied.pth"));
  EXPECT_EQ(file.tensors.at("0.weight").raw_data(), file.tensors.at("1.weight").raw_data());
  EXPECT_NE(file.tensors.at("0.bias").raw_data(), file.tensors.at("1.bias").raw_data());
}

TEST(PytorchReference, WhatNoTensorCanBeIsNamed) {
  const auto odd = [](const std::string& name) { return refusal<Unsupported>("no_" + name + ".pth"); };
  const std::string begin = R"(tensor "odd": )", elements = begin + "tensors cannot hold the elements of a ";
  EXPECT_EQ(odd("int8"), elements + "CharStorage");
  EXPECT_EQ(odd("int16"), elements + "ShortStorage");
  EXPECT_EQ(odd("complex64"), elements + "ComplexFloatStorage");
  for (const auto& [name, function] :
       {std::pair("uint16", "tensor_v3"), std::pair("float8", "tensor_v3"), std::pair("quantised", "qtensor"),
        std::pair("sparse", "sparse_tensor"), std::pair("sparse_rows", "sparse_tensor"),
        std::pair("meta", "meta_tensor_no_storage")}) {
    EXPECT_EQ(odd(name), begin + "tensors that torch._utils._rebuild_" + std::string(function) +
                             " makes cannot be read");
  }
  EXPECT_EQ(odd("expanded"), begin + "it repeats elements, as expand() does; clone it before it is saved");
  for (const std::string bit : {"conj", "neg"}) {
    EXPECT_EQ(odd(bit), begin + "it is a view whose '" + bit +
                            "' is still to be done; resolve that before it is saved");
  }
  EXPECT_EQ(odd("nine_axes"), begin + "tensors have at most 8 axes, not 9");
}

TEST(PytorchReference, WhatIsNoStateDictIsNamed) {
  EXPECT_EQ(refusal<Unsupported>("module.pt"),
            "it holds a whole module, torch.nn.modules.container.Sequential, and not its weights: save its "
            "state_dict()");
  EXPECT_EQ(refusal<Unsupported>("script.pt"),
            "this is a TorchScript program: save the module's state_dict() with torch.save");
  EXPECT_EQ(refusal<InvalidArgument>("tensor.pt"), "expected a dict of named tensors but got a tensor");
  EXPECT_EQ(refusal<InvalidArgument>("list.pt"), "expected a dict of named tensors but got a list or tuple");
}

// Every byte that is cut off or changed is noticed or changes values; nothing else happens.
TEST(PytorchReference, DamageIsReadOrRefused) {
  for (const std::string name : {"checkpoint.pth", "views_legacy.pth"}) {
    SCOPED_TRACE(name);
    const std::string file = sinter::testing::read_file(stored(name));
    for (size_t size = 0; size < file.size(); ++size)
      EXPECT_THROW(sinter::testing::parse_pytorch(file.substr(0, size)), Error) << size;
    size_t refused = 0;
    for (size_t at = 0; at < file.size(); ++at) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      try {
        sinter::testing::parse_pytorch(damaged);
      } catch (const IoError&) {
        ++refused;
      } catch (const Unsupported&) {
        ++refused;
      } catch (const InvalidArgument&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, file.size() / 4);
  }
}

TEST(WeightsFile, TakesEitherKindByItsFirstBytes) {
  const sinter::testing::TemporaryFolder folder;
  const NamedTensors state = expected_of("state.pth");
  NamedTensors parallel;
  for (const auto& [name, tensor] : state) parallel["module." + name] = tensor;
  write_safetensors(folder / "a.pth", parallel, {{"k", "v"}});  // names say nothing
  const Weights safetensors = read_weights(folder / "a.pth");
  expect_same(safetensors.tensors, state);
  EXPECT_EQ(safetensors.prefix, "module.");
  EXPECT_EQ(safetensors.metadata.at("k"), "v");
  EXPECT_EQ(message_of<InvalidArgument>([&] { read_weights(folder / "a.pth", {.key = "model"}); }),
            "[weights] " + (folder / "a.pth").string() +
                ": expected no key, as this is no file of PyTorch's, but got model");

  const Weights pytorch = read_weights(stored("checkpoint.pth"));
  expect_same(pytorch.tensors, state);
  EXPECT_EQ(pytorch.key, "state_dict");
  EXPECT_EQ(pytorch.prefix, "module.");
  EXPECT_TRUE(pytorch.metadata.empty());
  expect_same(read_weights(stored("two.pth"), {.key = "model"}).tensors,
              {{"w", expected_of("two.pth").at("model")}});
  sinter::testing::write_file(folder / "short", "x");
  EXPECT_EQ(message_of<IoError>([&] { read_weights(folder / "short"); }),
            "[safetensors] " + (folder / "short").string() +
                ": byte 0: expected a length of 8 bytes but the file has 1");
}

}  // namespace
}  // namespace sinter::nn
