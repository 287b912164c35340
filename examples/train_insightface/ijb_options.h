// The options of tests with IJB-B and IJB-C.
#pragma once

#include "options.h"

namespace CLI {
class App;
}

namespace train_insightface {

void add_ijb_options(CLI::App& app, Options& options);

}  // namespace train_insightface
