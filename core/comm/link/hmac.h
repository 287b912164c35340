// SHA-256 and HMAC with it, by which processes show each other that they know a secret. Internal to
// core/comm.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sinter::comm {

/// The 32 bytes of SHA-256 (FIPS 180-4) of `text`.
std::string sha256(std::string_view text);
/// The 32 bytes of HMAC-SHA256 (RFC 2104); a key may have any length, also none.
std::string hmac_sha256(std::string_view key, std::string_view text);
/// Whether two digests are the same, in a time that does not depend on where they differ.
bool same_digest(std::string_view a, std::string_view b);
/// Bytes from the system's source of random numbers. Throws Error if it gives none.
std::string random_bytes(size_t count);
/// "0aff": two digits a byte.
std::string to_hex(std::string_view bytes);

}  // namespace sinter::comm
