// Every pass; each is told of in its own file.
#pragma once

#include <sinter/passes/pass.h>

namespace sinter::passes {

void remove_dead_code(Graph& graph, PassContext& context);
void merge_common_subexpressions(Graph& graph, PassContext& context);
void make_mixed(Graph& graph, PassContext& context);
void turn_layout(Graph& graph, PassContext& context);
void fold_normalization(Graph& graph, PassContext& context);
void fold_input_normalization(Graph& graph, PassContext& context);
void fuse_normalization(Graph& graph, PassContext& context);
void fuse_convolution(Graph& graph, PassContext& context);
void sum_gradients(Graph& graph, PassContext& context);
void choose_norm_backend(Graph& graph, PassContext& context);
void sum_in_convolutions(Graph& graph, PassContext& context);
void recompute(Graph& graph, PassContext& context);
void bucket_gradients(Graph& graph, PassContext& context);

}  // namespace sinter::passes
