// Connections, messages on them, and what processes show each other: without a second process.
#include <thread>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <sinter/core/base/error.h>
#include <sinter/core/comm/hello.h>
#include <sinter/core/comm/link/hmac.h>
#include <sinter/core/comm/link/socket.h>
#include <sinter/version.h>

#include "common/error_message.h"

namespace sinter::comm {
namespace {

// FIPS 180-4's examples, and lengths around the end of a block (made with Python's hashlib).
TEST(Hmac, DigestsAreThoseOfTheStandard) {
  EXPECT_EQ(to_hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(to_hex(sha256(std::string(55, 'a'))),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(to_hex(sha256(std::string(64, 'a'))),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  EXPECT_EQ(to_hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// RFC 4231, cases 1, 2 and 6.
TEST(Hmac, CodesAreThoseOfTheStandard) {
  EXPECT_EQ(to_hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(to_hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      to_hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_TRUE(same_digest("abc", "abc"));
  EXPECT_FALSE(same_digest("abc", "abd"));
  EXPECT_FALSE(same_digest("abc", "ab"));
  EXPECT_NE(random_bytes(16), random_bytes(16));
}

class ChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int files[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, files), 0);
    other_ = Socket(files[0]);
    channel_ = Channel(Socket(files[1]));
  }
  void say(const std::string& bytes) {
    ASSERT_GT(::send(other_.file(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  }
  static std::string header(uint32_t bytes) {
    std::string text = "1TNS";
    const uint32_t kind = 5;
    text.append(reinterpret_cast<const char*>(&kind), 4).append(reinterpret_cast<const char*>(&bytes), 4);
    return text;
  }

  Socket other_;
  Channel channel_;
};

TEST_F(ChannelTest, MessagesComeInPiecesAndInOrder) {
  Channel to(std::move(other_));
  const std::string large(1 << 20, 'x');
  to.send({MessageKind::kPart, large});
  to.send({MessageKind::kBye, "small"});
  std::vector<Message> have;
  for (int i = 0; i < 10'000 && have.size() < 2; ++i) {
    to.flush();
    channel_.receive();
    while (std::optional<Message> message = channel_.take()) have.push_back(std::move(*message));
  }
  ASSERT_EQ(have.size(), 2U);
  EXPECT_EQ(have[0].text, large);
  EXPECT_EQ(have[1].text, "small");
  EXPECT_FALSE(to.has_unsent());
}

// What is not taken waits in the system: a sender that goes on cannot fill this process's memory.
TEST_F(ChannelTest, HoldsOneMessageOfTheGreatestLength) {
  channel_.set_limit(1000);
  const std::string message = header(500) + std::string(500, 'x');
  for (int i = 0; i < 40; ++i) say(message);
  EXPECT_TRUE(channel_.receive());
  int taken = 0;
  while (channel_.take()) ++taken;
  EXPECT_EQ(taken, 1);  // of the 1012 bytes that it holds
  for (int i = 0; i < 100; ++i) {
    channel_.receive();
    while (channel_.take()) ++taken;
  }
  EXPECT_EQ(taken, 40);
  EXPECT_TRUE(channel_.is_open());
}

// A rank that fails says why and goes; who writes to it meanwhile hears it all the same.
TEST_F(ChannelTest, LastWordsAreReadBehindAnEndThatAWriteHasMet) {
  say(header(3) + "why");
  other_.close();
  for (int i = 0; i < 3; ++i) channel_.send({MessageKind::kBeat, "alive"});
  EXPECT_FALSE(channel_.has_unsent());
  channel_.receive();
  const std::optional<Message> words = channel_.take();
  ASSERT_TRUE(words.has_value());
  EXPECT_EQ(words->text, "why");
  EXPECT_FALSE(channel_.is_open());
}

TEST_F(ChannelTest, EndsAtWhatIsNoMessage) {
  channel_.set_limit(1000);
  say(header(1001));
  channel_.receive();
  EXPECT_FALSE(channel_.is_open());
}

TEST_F(ChannelTest, EndsAtWhatIsNoMessageBehindOne) {
  say(header(3) + "abc" + "GET / HTTP/1.1");
  channel_.receive();
  ASSERT_TRUE(channel_.take().has_value());
  EXPECT_FALSE(channel_.take().has_value());
  EXPECT_FALSE(channel_.is_open());
}

TEST(Words, OfOthersAreFitForATerminal) {
  EXPECT_EQ(printable("n1\x1b[31m\n\x7f"), "n1?[31m??");
  EXPECT_EQ(printable("Z\xc3\xbcrich"), "Z\xc3\xbcrich");
  EXPECT_EQ(printable("a\xc2\x9b"
                      "31m"),
            "a\xc2?31m");
  EXPECT_EQ(to_number("17", 0, 20), 17);
  for (const char* text : {"", "x", "17x", " 17", "21", "-1", "99999999999999999999"})
    EXPECT_FALSE(to_number(text, 0, 20).has_value()) << text;
}

TEST(Addresses, AreFound) {
  std::string reason;
  ASSERT_FALSE(resolve("localhost", 80, reason).empty());
  EXPECT_TRUE(resolve("localhost", 80, reason)[0].is_loopback());
  EXPECT_TRUE(resolve("127.0.1.1", 80, reason)[0].is_loopback());
  EXPECT_TRUE(resolve("::1", 80, reason)[0].is_loopback());
  EXPECT_EQ(resolve("::1", 80, reason)[0].port(), 80);
  EXPECT_FALSE(resolve("10.1.2.3", 80, reason)[0].is_loopback());
  EXPECT_TRUE(resolve("no-such-host.invalid", 80, reason).empty());
  EXPECT_NE(reason.find("'no-such-host.invalid'"), std::string::npos) << reason;
  EXPECT_EQ(endpoint("10.1.2.3", 80), "10.1.2.3:80");
  EXPECT_EQ(endpoint("::1", 80), "[::1]:80");
}

TEST(Addresses, OfAnInterfaceAreFoundOrThoseThatThereAreAreNamed) {
  EXPECT_EQ(addresses_of_interface("lo")[0].text(), "127.0.0.1");
  const std::string message = test::message_of([] { addresses_of_interface("eth9"); });
  EXPECT_NE(message.find("SINTER_INTERFACE=eth9: there is no such interface that is up; this machine has"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("lo (127.0.0.1"), std::string::npos) << message;
}

TEST(Addresses, RankZeroListensWhereItIsReached) {
  const auto texts = [](const std::string& host, const std::string& interface) {
    std::vector<std::string> all;
    for (const Address& place : listening_places(host, 80, interface)) all.push_back(place.text());
    return all;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts("127.0.0.1", ""), Texts{"127.0.0.1"});
  EXPECT_EQ(texts("localhost", ""), Texts{"127.0.0.1"});
  EXPECT_EQ(texts("::1", ""), Texts{"::1"});
  // 192.0.2.0/24 is nobody's: a port of another machine that leads here.
  EXPECT_EQ(texts("192.0.2.7", ""), (Texts{"0.0.0.0", "::"}));
  EXPECT_EQ(texts("192.0.2.7", "lo")[0], "127.0.0.1");
  EXPECT_EQ(listening_places("192.0.2.7", 80, "lo")[0].port(), 80);
}

TEST(HelloTest, ComesBackAndShowsWhatDiffers) {
  ProcessEnvironment environment{
      .launcher = "environment", .rank = 1, .size = 3, .address = "n1", .port = 80};
  environment.job = "17";
  const Hello hello = own_hello(environment, "Gloo 1", "options");
  EXPECT_EQ(hello.version, SINTER_VERSION);
  const auto back = read_hello(write_hello(hello, "nonce"));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(describe(*back), describe(hello));
  EXPECT_EQ(back->purpose, hello.purpose);
  Hello own = hello;
  own.rank = 0;
  EXPECT_EQ(mistake_in(*back, own), "");
  const auto mistake = [&](const auto& change) {
    Hello other = hello;
    change(other);
    return mistake_in(other, own);
  };
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(mistake([](Hello& h) { h.version = "0.0.9"; }), "is of Sinter 0.0.9, but rank 0");
  expect(mistake([](Hello& h) { h.version = ""; }), "is of an older Sinter");
  expect(mistake([](Hello& h) { h.library = "Gloo 2"; }), "sums with Gloo 2, but rank 0");
  expect(mistake([](Hello& h) { h.size = 4; }), "says that there are 4 ranks, rank 0 that there are 3");
  expect(mistake([](Hello& h) { h.purpose = "x"; }), "was started with other options than rank 0");
  expect(mistake([](Hello& h) { h.rank = 3; }), "rank 3");
  expect(mistake([](Hello& h) { h.rank = 0; }), "which a job of 3 does not have besides rank 0");
}

TEST(HelloTest, NonsenseIsNone) {
  const std::string good = pack({"sinter-2", "v", "l", "j", "p", "h", "3", "1", "5", "n"});
  EXPECT_TRUE(read_hello(good).has_value());
  EXPECT_TRUE(read_hello(pack({"job", "3", "1", "host", "5"})).has_value());  // of the first version
  for (const std::string& text :
       {std::string(), std::string("GET / HTTP/1.1"), good + "x", pack({}), pack({"1", "2"}),
        pack({"other-9", "v", "l", "j", "p", "h", "3", "1", "5", "n"}),
        pack({"sinter-2", "v", "l", "j", "p", "h", "3", "-1", "5", "n"}),
        pack({"sinter-2", "v", "l", "j", "p", "h", "three", "1", "5", "n"}),
        pack({"sinter-2", "v", "l", "j", "p", "h", "3", "1", "0", "n"})})
    EXPECT_FALSE(read_hello(text).has_value()) << text;
  const auto odd = read_hello(pack({"sinter-2", "v", "l", "j", "p", "\x1b[2J", "3", "1", "5", "n"}));
  EXPECT_EQ(odd->host, "?[2J");
}

TEST(HelloTest, ProofsAreOfOneKeyOneSideAndOneMeeting) {
  const std::string good = proof("key", Side::kOther, "hello", "nonce");
  EXPECT_EQ(good, proof("key", Side::kOther, "hello", "nonce"));
  EXPECT_NE(good, proof("kez", Side::kOther, "hello", "nonce"));
  EXPECT_NE(good, proof("", Side::kOther, "hello", "nonce"));
  EXPECT_NE(good, proof("key", Side::kRankZero, "hello", "nonce"));
  EXPECT_NE(good, proof("key", Side::kOther, "hell", "ononce"));
  EXPECT_NE(good, proof("key", Side::kOther, "hello", "other"));
}

}  // namespace
}  // namespace sinter::comm
