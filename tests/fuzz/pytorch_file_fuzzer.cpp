// Any bytes as a file of PyTorch, or as the pickle in a sound archive: read, or refused with a typed error.
// What was read must survive writing.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include <sinter/core/base/error.h>
#include <sinter/nn/checkpoint/pytorch/pytorch_file.h>

namespace {

template <class T>
void put(std::string& text, T number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// An archive of the pickle and of four storages, data/0 to data/3, of 16 bytes each; checksums are left out.
std::string archive_of(const std::string& pickle) {
  std::string file, directory;
  uint16_t count = 0;
  const auto add = [&](const std::string& name, const std::string& bytes) {
    const auto place = static_cast<uint32_t>(file.size()), size = static_cast<uint32_t>(bytes.size());
    put(file, uint32_t{0x04034b50});
    file.append(22, '\0');
    put(file, static_cast<uint32_t>(name.size()));
    file += name + bytes;
    put(directory, uint32_t{0x02014b50});
    directory.append(16, '\0');
    put(directory, size);
    put(directory, size);
    put(directory, static_cast<uint32_t>(name.size()));
    directory.append(10, '\0');
    put(directory, place);
    directory += name;
    ++count;
  };
  add("a/data.pkl", pickle);
  for (const char key : {'0', '1', '2', '3'})
    add(std::string("a/data/") + key, std::string(16, key == '3' ? '\1' : key));
  const auto begin = static_cast<uint32_t>(file.size());
  file += directory;
  put(file, uint32_t{0x06054b50});
  put(file, uint32_t{0});
  put(file, count);
  put(file, count);
  put(file, static_cast<uint32_t>(directory.size()));
  put(file, begin);
  put(file, uint16_t{0});
  return file;
}

sinter::nn::PytorchFile parse(const std::string& file, const std::string& key = "") {
  return sinter::nn::parse_pytorch(std::as_bytes(std::span(file)), "fuzz.pth", {.key = key});
}

bool are_same(const sinter::Tensor& a, const sinter::Tensor& b) {
  return a.spec() == b.spec() &&
         (a.numel() == 0 || std::memcmp(a.raw_data(), b.raw_data(), a.spec().bytes()) == 0);
}

void read(const std::string& file) {
  sinter::nn::PytorchFile first;
  std::string again;
  try {
    first = parse(file);
    sinter::nn::serialize_pytorch(first.tensors, first.metadata, [&](std::span<const std::byte> piece) {
      again.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    });
  } catch (const sinter::IoError&) {
    return;
  } catch (const sinter::Unsupported&) {
    return;
  } catch (const sinter::InvalidArgument&) {  // no weights, or a name or a text that cannot be written
    return;
  }
  const sinter::nn::PytorchFile second = parse(again);
  if (second.tensors.size() != first.tensors.size() || second.metadata != first.metadata) std::abort();
  for (const auto& [name, tensor] : first.tensors) {
    if (!are_same(tensor, second.tensors.at(name.substr(second.prefix.size())))) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  if (size > 0 && data[0] == 0x80) read(archive_of(bytes));
  return 0;
}
