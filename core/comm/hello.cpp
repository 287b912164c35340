#include <tuple>

#include <unistd.h>

#include <sinter/core/base/error.h>
#include <sinter/core/comm/hello.h>
#include <sinter/core/comm/link/hmac.h>
#include <sinter/core/comm/link/socket.h>
#include <sinter/version.h>

namespace sinter::comm {
namespace {

constexpr const char* kProtocol = "sinter-2";
constexpr size_t kWords = 10, kOldWords = 5;
constexpr size_t kMostName = 255;
constexpr int64_t kGreatest = 1 << 30;

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return printable(name);
}

/// Fills in whatever is a number there.
bool read_place(const std::string& size, const std::string& rank, const std::string& process, Hello& hello) {
  const auto count = to_number(size, 1, kGreatest), number = to_number(rank, 0, kGreatest),
             id = to_number(process, 1, kGreatest);
  if (!count || !number || !id) return false;
  hello.size = static_cast<int>(*count);
  hello.rank = static_cast<int>(*number);
  hello.process = static_cast<int>(*id);
  return true;
}

}  // namespace

Hello own_hello(const ProcessEnvironment& environment, const std::string& library,
                const std::string& purpose) {
  return {.version = SINTER_VERSION,
          .library = library,
          .job = environment.job,
          .purpose = purpose.empty() ? "" : to_hex(sha256(purpose)),
          .host = host_name(),
          .size = environment.size,
          .rank = environment.rank,
          .process = getpid()};
}

std::string write_hello(const Hello& hello, const std::string& nonce) {
  return pack({kProtocol, hello.version, hello.library, hello.job, hello.purpose, hello.host,
               std::to_string(hello.size), std::to_string(hello.rank), std::to_string(hello.process), nonce});
}

std::optional<Hello> read_hello(const std::string& text) {
  auto words = unpack(text);
  if (!words) return std::nullopt;
  for (size_t i = 0; i + 1 < words->size(); ++i) (*words)[i] = printable((*words)[i]).substr(0, kMostName);
  Hello hello;
  if (words->size() == kOldWords) {  // of the first version
    std::tie(hello.job, hello.host) = std::tie((*words)[0], (*words)[3]);
    return read_place((*words)[1], (*words)[2], (*words)[4], hello) ? std::optional(hello) : std::nullopt;
  }
  if (words->size() != kWords || words->front() != kProtocol) return std::nullopt;
  std::tie(hello.version, hello.library, hello.job, hello.purpose, hello.host) =
      std::tie((*words)[1], (*words)[2], (*words)[3], (*words)[4], (*words)[5]);
  return read_place((*words)[6], (*words)[7], (*words)[8], hello) ? std::optional(hello) : std::nullopt;
}

std::string describe(const Hello& hello) {
  return fmt::format("rank {} ({}, process {})", hello.rank, hello.host, hello.process);
}

std::string mistake_in(const Hello& hello, const Hello& own) {
  const std::string who = "[comm] " + describe(hello);
  if (hello.version != own.version) {
    return fmt::format("{} is of {}, but {} of Sinter {}; all ranks need the same", who,
                       hello.version.empty() ? "an older Sinter" : "Sinter " + hello.version, describe(own),
                       own.version);
  }
  if (hello.library != own.library) {
    return fmt::format(
        "{} sums with {}, but {} with {}; all ranks need the same (SINTER_GLOO=off on all does without)", who,
        hello.library, describe(own), own.library);
  }
  if (hello.size != own.size)
    return fmt::format("{} says that there are {} ranks, rank 0 that there are {}", who, hello.size,
                       own.size);
  if (hello.rank < 1 || hello.rank >= own.size)
    return fmt::format("{} came, which a job of {} does not have besides {}", who, own.size, describe(own));
  if (hello.purpose != own.purpose)
    return fmt::format("{} was started with other options than {}", who, describe(own));
  return {};
}

std::string proof(const std::string& key, Side side, const std::string& hello, const std::string& nonce) {
  return hmac_sha256(key, pack({side == Side::kRankZero ? "rank 0" : "another rank", hello, nonce}));
}

}  // namespace sinter::comm
