// What stands in checkpoints and files of weights beside the numbers, and whether it fits a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sinter/nn/checkpoint/checkpoint.h>
#include <sinter/nn/checkpoint/model_metadata.h>
#include <sinter/nn/checkpoint/weights_file.h>
#include <sinter/nn/data/dataset.h>
#include <sinter/nn/module/module.h>

namespace sinter::examples {

/// A fingerprint in 16 hexadecimal digits.
std::string fingerprint_text(const nn::data::Dataset& data);

/// The metadata that the training data decide: classes, number of images, fingerprint.
nn::ModelMetadata describe_data(const nn::data::Dataset& train);

/// Puts metadata among a checkpoint's values, and gets them back: none from those of earlier versions, of
/// which it is then said that those of the data are taken, if `tells`.
void write_metadata(const nn::ModelMetadata& metadata, nn::CheckpointData& data);
std::optional<nn::ModelMetadata> read_metadata(const nn::LoadedCheckpoint& checkpoint, bool tells = true);

/// Throws Error that names `source` and what differs unless the outputs of its model mean the classes of
/// `now`.
void check_same_classes(const std::string& source, const nn::ModelMetadata& before,
                        const nn::ModelMetadata& now);

/// The same for a run that goes on, whose data must be the same too. If `allowed` (--change-recipe), other
/// names and data are told, not refused; another number of classes is refused always. Gives whether the data
/// are the same.
bool check_same_data(const std::string& source, const nn::ModelMetadata& before, const nn::ModelMetadata& now,
                     bool allowed);

/// A file of weights, and what it says of itself.
struct WeightsFile {
  std::string source;  // "--load-weights best.safetensors"
  nn::State state;
  std::optional<nn::ModelMetadata> metadata;
};

/// Reads --load-weights, a safetensors file or one of PyTorch's, as nn::read_weights does, and says what it
/// passed over, took off names or took for the weights.
/// `key` is --key. Throws Error that names the option if there are no weights at it.
WeightsFile read_weights(const std::string& path, const std::string& key = {});

/// Says of weights without metadata that those of the data are taken for them, where data are opened.
void tell_of_data(const WeightsFile& weights);

enum class WeightsFormat : uint8_t { kSafetensors, kPytorch };
/// That which the end of a name says: .safetensors, .pth or .pt, as written here. None for others.
std::optional<WeightsFormat> weights_format(const std::filesystem::path& path);

/// What is wrong with the name of a file of weights to be written, as it ends otherwise; empty if nothing is.
/// A name without an end is that of a safetensors file.
std::string check_weights_name(const char* option, const std::filesystem::path& path);

/// Writes weights and what they are of to a file of PyTorch's if its name ends in .pth or .pt, else to a
/// safetensors file.
void write_weights_file(const std::string& path, const nn::State& weights, const nn::ModelMetadata& metadata);

/// Says where in a file its weights were, what was taken off their names and what was passed over.
void tell_how_read(const std::string& source, const nn::Weights& weights);

/// How many blocks each stage has, by the names of a residual network's state: "layer2.0.conv1.weight".
std::vector<size_t> count_blocks(const nn::State& state);

/// Loads the weights. Throws Error that names `source`, the model that `metadata` says, and what does not
/// fit, three names at most, unless all do.
void load_weights(const std::string& source, const nn::State& state, const nn::ModuleBase& model,
                  const std::optional<nn::ModelMetadata>& metadata = {});

/// Throws Error if a checkpoint lacks this part, which those of this program have, but has that of another.
void check_program(const nn::LoadedCheckpoint& checkpoint, const std::string& part,
                   const std::string& part_of_other, const char* other);

}  // namespace sinter::examples
