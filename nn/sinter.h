// All of Sinter that programs need: <sinter/nn/nn.h>, every op, gradient checks, several processes, profiles,
// settings and the log.
#pragma once

#include <sinter/autograd/gradcheck.h>
#include <sinter/core/base/log.h>
#include <sinter/core/comm/communicator.h>
#include <sinter/core/profile/profile.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/ops.h>
