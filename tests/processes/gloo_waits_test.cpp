// Waits in Gloo that are ended from outside, between two ranks of one process.
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>
#include <gtest/gtest.h>

#include <sinter/core/comm/host/gloo_mesh.h>

namespace sinter::comm {
namespace {

using namespace std::chrono_literals;

/// Two ranks that are connected.
class GlooWaitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::is_abstract_v<WakeableBuffer> || std::is_abstract_v<WakeableContext>)
      GTEST_SKIP() << "this Gloo asks more of a buffer; its waits are its own";
    gloo::rendezvous::HashStore store;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        gloo::transport::tcp::attr attributes;
        attributes.hostname = "127.0.0.1";
        auto device = gloo::transport::tcp::CreateDevice(attributes);
        auto mesh = std::make_shared<WakeableMesh>(rank, 2);
        mesh->setTimeout(60s);
        mesh->connectFullMesh(store, device);
        mesh->wake_with(waits_[rank]);
        meshes_[rank] = mesh;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_of(int rank, std::vector<float>& data) {
    return meshes_[rank]->createUnboundBuffer(data.data(), data.size() * sizeof(float));
  }
  /// How a wait of `rank` ends, and when.
  template <class Wait>
  std::pair<std::string, double> outcome(const Wait& wait) {
    const auto start = std::chrono::steady_clock::now();
    std::string text;
    try {
      wait();
    } catch (const gloo::IoException& error) {
      text = error.what();
    }
    return {text, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
  }

  std::shared_ptr<GlooWaits> waits_[2] = {std::make_shared<GlooWaits>(), std::make_shared<GlooWaits>()};
  std::shared_ptr<gloo::Context> meshes_[2];
};

TEST_F(GlooWaitsTest, BuffersCarryWhatIsSent) {
  std::vector<float> sent(1'000'000, 3.0F), received(1'000'000);
  const auto from = buffer_of(0, sent), to = buffer_of(1, received);
  to->recv(0, 7);
  from->send(1, 7);
  to->waitRecv();
  from->waitSend();
  EXPECT_EQ(received, sent);
}

TEST_F(GlooWaitsTest, EndWhereTheOtherTakesNoPart) {
  std::vector<float> data(1'000'000);
  const auto sends = buffer_of(0, data), receives = buffer_of(0, data);
  sends->send(1, 7);
  receives->recv(1, 8);
  std::thread later([&] {
    std::this_thread::sleep_for(300ms);
    waits_[0]->fail("rank 1 is lost");
  });
  const auto [sending, seconds] = outcome([&] { sends->waitSend(); });
  EXPECT_NE(sending.find("rank 1 is lost"), std::string::npos) << sending;
  EXPECT_LT(seconds, 20.0);
  const auto [receiving, no_seconds] = outcome([&] { receives->waitRecv(); });
  EXPECT_NE(receiving.find("rank 1 is lost"), std::string::npos) << receiving;
  EXPECT_LT(no_seconds, 20.0);
  later.join();
}

TEST_F(GlooWaitsTest, EndAtOnceBehindTheFailure) {
  waits_[0]->fail("rank 1 is lost");
  std::vector<float> data(1000);
  const auto buffer = buffer_of(0, data);
  buffer->send(1, 7);
  const auto [text, seconds] = outcome([&] { buffer->waitSend(); });
  EXPECT_NE(text.find("rank 1 is lost"), std::string::npos) << text;
  EXPECT_LT(seconds, 20.0);
}

TEST(GlooErrors, AreToldWithoutTheNamesOfItsSources) {
  const auto words = [](const char* text) { return words_of(std::runtime_error(text)); };
  EXPECT_EQ(words("[./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:3333"),
            "Connection closed by peer [127.0.0.1]:3333");
  EXPECT_EQ(
      words("[enforce fail at ../gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable to find address"),
      "Unable to find address");
  EXPECT_EQ(words("[comm] rank 1 is lost"), "[comm] rank 1 is lost");
  EXPECT_EQ(words("no memory"), "no memory");
}

}  // namespace
}  // namespace sinter::comm
