// Profiles of jobs: every call of a step, with its place in the model.
#include <map>
#include <set>

#include <sinter/core/profile/profile.h>

#include "nn/job/job_test_support.h"

namespace sinter::nn {
namespace {

using namespace testing;

double flops_of(const std::vector<OpProfile::Row>& rows) {
  double flops = 0;
  for (const OpProfile::Row& row : rows) flops += row.flops;
  return flops;
}

TEST(JobProfile, ShowsEachCallOfAStepAndItsScope) {
  for (const Device device : devices_here()) {
    const ResNet model = resnet20({.classes = 10, .in_channels = 3, .width = 8});
    model.to(device);
    SGD sgd(model.parameters());
    TrainJob job(model, CrossEntropyLoss{}, sgd);
    const Tensor x = floats({4, 3, 16, 16}, 1).to(device), y = labels(4, 10, 1).to(device);
    for (int i = 0; i < 3; ++i) job.step(x, y, 0.1);

    OpProfile profile({.by_scope = true});
    for (int i = 0; i < 2; ++i) job.step(x, y, 0.1);
    profile.stop();
    job.step(x, y, 0.1);  // not seen

    uint64_t calls = 0;
    std::map<std::string, std::set<std::string>> scopes;
    for (const OpProfile::Row& row : profile.rows()) {
      calls += row.calls;
      EXPECT_EQ(row.calls % 2, 0u) << row.op << " " << row.scope;
      scopes[row.op].insert(row.scope);
    }
    EXPECT_EQ(calls, 2 * job.program().stats().calls);
    std::set<std::string> convolutions{"conv1"};
    for (int layer = 1; layer <= 3; ++layer) {
      for (int block = 0; block < 3; ++block) {
        for (const char* name : {"conv1", "conv2"})
          convolutions.insert(fmt::format("layer{}.{}.{}", layer, block, name));
      }
    }
    for (const int layer : {2, 3}) convolutions.insert(fmt::format("layer{}.0.downsample.0", layer));
    EXPECT_EQ(scopes.at("conv2d"), convolutions);
    EXPECT_EQ(scopes.at("conv2d_grad_weight"), convolutions);  // a gradient is where the call is whose it is
    EXPECT_TRUE(scopes.contains("cross_entropy"));
    EXPECT_EQ(scopes.at("cross_entropy"), (std::set<std::string>{"(loss)"}));
    EXPECT_NE(profile.table({.max_rows = 5}).find("layer"), std::string::npos) << profile.table();

    // The same step, run eagerly: as many operations, and nowhere in particular.
    OpProfile eager({.by_scope = true});
    backward(CrossEntropyLoss{}(model(x), y));
    eager.stop();
    for (const OpProfile::Row& row : eager.rows()) EXPECT_EQ(row.scope, "") << row.op;
    EXPECT_GT(flops_of(eager.rows()), 1e6);
    EXPECT_DOUBLE_EQ(flops_of(profile.rows()), 2 * flops_of(eager.rows()));
  }
}

}  // namespace
}  // namespace sinter::nn
