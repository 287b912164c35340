#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <sinter/core/base/error.h>
#include <sinter/core/comm/link/address.h>

namespace sinter::comm {
namespace {

Address of_raw(const sockaddr* place, socklen_t length) {
  Address address;
  std::memcpy(&address.place, place, length);
  address.length = length;
  return address;
}

struct OfInterface {
  std::string name;
  Address address;
};

/// The interfaces that are up and their addresses; one without an address has an empty one.
std::vector<OfInterface> own_interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0)
    throw_error<Error>("[comm] the system tells no network interfaces: {}", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<OfInterface> found;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if ((each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr != nullptr ? each->ifa_addr->sa_family : AF_UNSPEC;
    OfInterface one{each->ifa_name, {}};
    if (family == AF_INET) one.address = of_raw(each->ifa_addr, sizeof(sockaddr_in));
    if (family == AF_INET6) one.address = of_raw(each->ifa_addr, sizeof(sockaddr_in6));
    found.push_back(one);
  }
  return found;
}

bool same_host(const Address& a, const Address& b) {
  Address x = a, y = b;
  x.set_port(0), y.set_port(0);
  return x.text() == y.text();
}

std::vector<Address> all_places(int port) {
  std::string ignored;
  std::vector<Address> places = resolve("0.0.0.0", port, ignored);
  for (const Address& each : resolve("::", port, ignored)) places.push_back(each);
  return places;
}

std::optional<Address> end_of(int file, int (*ask)(int, sockaddr*, socklen_t*)) {
  Address address;
  address.length = sizeof address.place;
  if (ask(file, reinterpret_cast<sockaddr*>(&address.place), &address.length) != 0) return std::nullopt;
  if (address.family() != AF_INET && address.family() != AF_INET6) return std::nullopt;
  return address;
}

}  // namespace

int Address::port() const {
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&place)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&place)->sin_port);
}

void Address::set_port(int port) {
  const uint16_t number = htons(static_cast<uint16_t>(port));
  if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(&place)->sin_port = number;
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(&place)->sin6_port = number;
}

bool Address::is_loopback() const {
  if (family() == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&place)->sin6_addr);
  return family() == AF_INET &&
         ntohl(reinterpret_cast<const sockaddr_in*>(&place)->sin_addr.s_addr) >> 24 == 127;
}

std::string Address::text() const {
  char name[NI_MAXHOST] = {};
  if (getnameinfo(raw(), length, name, sizeof name, nullptr, 0, NI_NUMERICHOST) != 0)
    return "an unknown address";
  return name;
}

std::string endpoint(const std::string& host, int port) {
  return host.find(':') != std::string::npos ? fmt::format("[{}]:{}", host, port)
                                             : fmt::format("{}:{}", host, port);
}

std::vector<Address> resolve(const std::string& host, int port, std::string& reason) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* first = nullptr;
  const std::string known = host == "localhost" ? "127.0.0.1" : host;
  const int status = getaddrinfo(known.c_str(), std::to_string(port).c_str(), &hints, &first);
  if (status != 0) {
    reason = fmt::format("the name '{}' stands for no address here ({})", host, gai_strerror(status));
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(first, freeaddrinfo);
  std::vector<Address> found;
  for (const addrinfo* each = first; each != nullptr; each = each->ai_next) {
    if (each->ai_family == AF_INET || each->ai_family == AF_INET6)
      found.push_back(of_raw(each->ai_addr, each->ai_addrlen));
  }
  return found;
}

std::optional<Address> near_end(int file) {
  return end_of(file, getsockname);
}

std::optional<Address> far_end(int file) {
  return end_of(file, getpeername);
}

std::vector<Address> addresses_of_interface(const std::string& name) {
  std::vector<Address> found;
  std::map<std::string, std::string> others;
  for (const OfInterface& each : own_interfaces()) {
    if (each.name == name && each.address.length > 0) found.push_back(each.address);
    std::string& texts = others[each.name];
    if (each.address.length > 0) texts += (texts.empty() ? " " : ", ") + each.address.text();
  }
  if (found.empty()) {
    std::string list;
    for (const auto& [other, texts] : others)
      list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", other,
                          texts.empty() ? "no address" : texts.substr(1));
    throw_error<InvalidArgument>(
        "[comm] SINTER_INTERFACE={}: {}; this machine has {}", name,
        others.contains(name) ? "it has no address" : "there is no such interface that is up", list);
  }
  std::stable_sort(found.begin(), found.end(), [](const Address& a, const Address& b) {
    return a.family() == AF_INET && b.family() != AF_INET;
  });
  return found;
}

std::vector<Address> listening_places(const std::string& host, int port, const std::string& interface) {
  std::string ignored;
  in6_addr digits{};
  const bool is_name = inet_pton(AF_INET, host.c_str(), &digits) != 1 &&
                       inet_pton(AF_INET6, host.c_str(), &digits) != 1 &&
                       host.find('%') == std::string::npos && host != "localhost";
  std::vector<Address> places;
  const std::vector<OfInterface> own = own_interfaces();
  for (const Address& each : resolve(host, port, ignored)) {
    const bool is_own = std::any_of(own.begin(), own.end(), [&](const OfInterface& one) {
      return one.address.length > 0 && same_host(one.address, each);
    });
    if (each.is_loopback() ? !is_name : is_own) places.push_back(each);
  }
  if (places.empty() && !interface.empty()) {
    places = addresses_of_interface(interface);
    for (Address& place : places) place.set_port(port);
  }
  return places.empty() ? all_places(port) : places;
}

}  // namespace sinter::comm
