// Data sets in MXNet's RecordIO files, as face recognition's come in: <name>.rec with its index <name>.idx,
// and the number of classes in the file `property`. `sinter_pack` makes them of folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <sinter/nn/data/dataset.h>
#include <sinter/nn/data/image/jpeg.h>

namespace sinter::nn::data {

struct RecordDatasetOptions {
  DecodeOptions decode = {};
  /// The classes in the order of their labels. Empty: as many as `property` beside the file says, named by
  /// classes.txt there, a name a line, or by their numbers.
  std::vector<std::string> class_names = {};
};

/// Opens `rec`, which may end in .rec, with its index beside it. The images are JPEGs, PNGs, PGMs or PPMs, in
/// the order of their keys; a list of labels counts by its first entry. Where record 0 says that identities
/// lie behind the images, those are left out. The file is mapped, not read: opening costs the index, and no
/// more memory than 16 bytes an image. Throws IoError, naming file, record and byte, if the files are
/// missing, damaged, or do not fit together; what one record holds is looked at when it is read, and then is
/// an IoError too. The file must not be changed while it is open.
std::shared_ptr<const Dataset> open_records(const std::filesystem::path& rec,
                                            const RecordDatasetOptions& options = {});

}  // namespace sinter::nn::data
