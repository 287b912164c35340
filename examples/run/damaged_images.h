// The damaged images that a run puts up with, and how it tells of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <sinter/nn/data/dataset.h>

namespace sinter::examples {

class DamagedImages {
 public:
  /// The same data set, in which sound samples stand for at most `most` damaged ones. `name` is what its
  /// images are called: "training".
  std::shared_ptr<const nn::data::Dataset> watch(std::string name,
                                                 std::shared_ptr<const nn::data::Dataset> dataset,
                                                 int64_t most);
  /// Says of each data set in which more were met since the last call how many there are, and the first.
  void tell();
  /// Met so far, in all data sets.
  int64_t count() const;

 private:
  struct Watched {
    std::string name;
    std::shared_ptr<const nn::data::SkipDamaged> dataset;
    int64_t told = 0;
  };
  std::vector<Watched> watched_;
};

}  // namespace sinter::examples
