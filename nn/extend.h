// For own ops and own passes, beside <sinter/sinter.h>: the registry, calls, attributes and kernels,
// gradients of ops, graphs of jobs and what rewrites them, and the ops in ops::vjp, ops::fused and
// ops::update that programs do without. Jobs take for granted that kernels are functions of their inputs and
// attributes: calls may be merged, left out, made once, or captured. What an op keeps from call to call is a
// tensor among its mutated inputs. What is here, and in namespaces called detail, may change with a
// minor version.
#pragma once

#include <sinter/autograd/differentiate.h>
#include <sinter/core/executor/program.h>
#include <sinter/core/graph/graph.h>
#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/attributes.h>
#include <sinter/core/op/autotune/choose_by_time.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/call_observer.h>
#include <sinter/core/op/call_tracer.h>
#include <sinter/core/op/dispatch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/node.h>
#include <sinter/core/op/op_def.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/advance_steps/advance_steps.h>
#include <sinter/ops/all_gather/all_gather.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/common/cpu/elementwise_op_cpu.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/grad_norm/grad_norm.h>
#include <sinter/ops/loss_scale/loss_scale.h>
#include <sinter/ops/metrics/metrics.h>
#include <sinter/ops/ops.h>
#include <sinter/ops/optimizer/optimizer.h>
#include <sinter/ops/random_key/random_key.h>
#include <sinter/ops/random_normal/random_normal.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm.h>
#include <sinter/passes/pass.h>
#include <sinter/passes/pipeline.h>
