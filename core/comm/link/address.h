// Addresses of sockets, IPv4 and IPv6, and those of this machine. Internal to core/comm.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/socket.h>

namespace sinter::comm {

struct Address {
  sockaddr_storage place = {};
  socklen_t length = 0;

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&place); }
  int family() const { return place.ss_family; }
  int port() const;
  void set_port(int port);
  bool is_loopback() const;
  /// "10.0.0.1", "fd00::1" or "fe80::1%eth0"; without the port.
  std::string text() const;
};

/// "10.0.0.1:29410", "[fd00::1]:29410".
std::string endpoint(const std::string& host, int port);

/// What a name or an address in digits stands for; none, and why. "localhost" needs no table of hosts.
std::vector<Address> resolve(const std::string& host, int port, std::string& reason);

/// The near and the far end of a connection; nothing if it has none.
std::optional<Address> near_end(int file);
std::optional<Address> far_end(int file);

/// The addresses of a network interface of this machine, IPv4 first. Throws InvalidArgument, with those that
/// there are, where it has none.
std::vector<Address> addresses_of_interface(const std::string& name);

/// Where rank 0 listens, as others reach it by `host`: at that address if it is one of this machine's, at all
/// of them where it is not (as behind a port that is forwarded) or where a name stands for the loopback, as a
/// machine's own name does in many a table of hosts. Then `interface` decides, if it is not empty.
std::vector<Address> listening_places(const std::string& host, int port, const std::string& interface);

}  // namespace sinter::comm
