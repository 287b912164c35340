// Part of every program: descriptors 0, 1 and 2 are open before anything else is. Where one of them was
// closed
// (`>&-`), the next file that the program opens would get its number, and all that is printed.
#include <cerrno>

#include <fcntl.h>

namespace {

// 101: before all other constructors of the program.
[[gnu::constructor(101)]] void open_standard_files() {
  for (int file = 0; file <= 2; ++file) {
    if (fcntl(file, F_GETFD) != -1 || errno != EBADF) continue;
    // An open file gets the lowest free number, which is this one. In a container without /dev another holds
    // its place, and to write there is an error.
    if (open("/dev/null", O_RDWR) < 0) open("/", O_RDONLY | O_DIRECTORY);
  }
}

}  // namespace
