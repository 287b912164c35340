// {fmt} for precompiled headers. Where nothing is optimised, it has its own functions optimised by a pragma
// of GCC, whose macro
// __OPTIMIZE__ stays defined in what includes the precompiled header; the compiler's headers of intrinsics
// then do not compile. Here {fmt} takes all as optimised already.
#pragma once

#ifdef __OPTIMIZE__
#include <fmt/format.h>
#else
#define __OPTIMIZE__ 1
#include <fmt/format.h>
#undef __OPTIMIZE__
#endif
