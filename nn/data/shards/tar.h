// The members of a tar archive: where each one's bytes lie. Nothing is unpacked, and no name is a path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace sinter::nn::data {

/// Fills `bytes` from `offset` on; the range lies inside the archive.
using TarReadAt = std::function<void(uint64_t offset, std::span<uint8_t> bytes)>;

/// A regular file in an archive.
struct TarMember {
  std::string name;     ///< as the archive has it, of at most 4,096 bytes without a zero byte
  uint64_t header = 0;  ///< byte at which its header block starts
  uint64_t offset = 0;  ///< byte at which its contents start
  uint64_t size = 0;
};

/// Reads the headers of an archive of `size` bytes and calls `visit` for every regular file, in order. Knows
/// the old format, ustar, GNU (long names, sizes in base 256) and pax (path and size). Folders, behind whose
/// headers no bytes follow whatever size they state, and what pax says besides are passed over. Throws
/// IoError with `name`, the member and the byte for a wrong checksum, a number that is none, a member that
/// reaches beyond the archive, an end that is missing or followed by something else; and for links, devices,
/// sparse files and all other types. Source: POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar's manual,
/// "Basic Tar Format".
void read_tar(uint64_t size, const TarReadAt& read_at, const std::string& name,
              const std::function<void(const TarMember&)>& visit);

inline constexpr uint64_t kTarBlock = 512;

/// The name in a header block, for messages, with what cannot be printed replaced; none if the block's
/// checksum is wrong. Long names are cut to what the block holds.
std::optional<std::string> tar_header_name(std::span<const uint8_t, kTarBlock> block);

}  // namespace sinter::nn::data
