// Everything that trains networks, in one header.
#pragma once

#include <sinter/nn/init.h>
#include <sinter/nn/layers/activation.h>
#include <sinter/nn/layers/batch_norm.h>
#include <sinter/nn/layers/conv2d.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/nn/layers/pool.h>
#include <sinter/nn/layers/sequential.h>
#include <sinter/nn/layers/simple.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/nn/metrics/metrics.h>
#include <sinter/nn/models/resnet.h>
#include <sinter/nn/module/module.h>
#include <sinter/nn/optim/adam.h>
#include <sinter/nn/optim/grad_scaler.h>
#include <sinter/nn/optim/optimizer.h>
#include <sinter/nn/optim/sgd.h>
#include <sinter/nn/schedule/schedule.h>
