/* SPDX-License-Identifier: MIT
 *
 * Graphs: the operations of a capture in the order in which they were queued, which is one that respects every
 * dependency. */
#include "driver_state.h"

#include <stdlib.h>

CUresult capture_append(capture *c, const operation *op) {
    CUgraph graph = c->graph;
    CUgraphNode node = object_add(OBJECT_NODE, sizeof *node, NULL);
    if (!node || !operation_copy(&node->operation, op)) {
        if (node)
            object_remove(node);
        c->invalidated = true;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *(graph->last ? &graph->last->next_node : &graph->first) = node;
    graph->last = node;
    graph->num_nodes++;
    return CUDA_SUCCESS;
}

void graph_remove(CUgraph graph) {
    for (CUgraphNode node = graph->first, next; node; node = next) {
        next = node->next_node;
        operation_free(&node->operation);
        object_remove(node);
    }
    object_remove(graph);
}

static void exec_remove(CUgraphExec exec) {
    for (size_t i = 0; i < exec->num_operations; i++)
        operation_free(&exec->operations[i]);
    free(exec->operations);
    object_remove(exec);
}

CUresult CUDAAPI cuGraphDestroy(CUgraph graph) {
    ENTER();
    if (!object_is(OBJECT_GRAPH, graph))
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    graph_remove(graph);
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    ENTER();
    if (!object_is(OBJECT_GRAPH, graph) || !count)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (!nodes) {
        *count = graph->num_nodes;
        LEAVE(CUDA_SUCCESS);
    }
    size_t i = 0;
    for (CUgraphNode node = graph->first; i < *count; i++) {
        nodes[i] = node;
        node = node ? node->next_node : NULL;
    }
    if (*count > graph->num_nodes)
        *count = graph->num_nodes;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    static const CUgraphNodeType types[] = {[OPERATION_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
                                            [OPERATION_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
                                            [OPERATION_SET] = CU_GRAPH_NODE_TYPE_MEMSET};
    ENTER();
    if (!object_is(OBJECT_NODE, node) || !type)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    *type = types[node->operation.kind];
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    ENTER();
    if (!out || !object_is(OBJECT_GRAPH, graph) || flags)
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    CUgraphExec exec = object_add(OBJECT_EXEC, sizeof *exec, NULL);
    if (!exec)
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    exec->operations = calloc(graph->num_nodes + 1, sizeof *exec->operations);
    bool copied = exec->operations != NULL;
    for (CUgraphNode node = graph->first; node && copied; node = node->next_node) {
        copied = operation_copy(&exec->operations[exec->num_operations], &node->operation);
        exec->num_operations += copied;
    }
    if (!copied) {
        exec_remove(exec);
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *out = exec;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream handle) {
    ENTER_CONTEXT();
    CUstream stream;
    if (!object_is(OBJECT_EXEC, exec))
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    CUresult result = stream_find(ctx, handle, &stream);
    if (result == CUDA_SUCCESS)
        result = capture_check_stream(stream);
    if (result != CUDA_SUCCESS)
        LEAVE(result);
    if (stream->capture) {
        driver_say("cuGraphLaunch into a capturing stream: child graphs are not modelled");
        stream->capture->invalidated = true;
        LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    for (size_t i = 0; i < exec->num_operations && result == CUDA_SUCCESS; i++) {
        operation copy;
        result = operation_copy(&copy, &exec->operations[i]) ? queue_work(stream, &copy) : CUDA_ERROR_OUT_OF_MEMORY;
        operation_free(&copy);
        if (result == CUDA_SUCCESS && operation_uses_pageable(&exec->operations[i]))
            queue_drain_stream(stream);
    }
    LEAVE(result);
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec) {
    ENTER();
    if (!object_is(OBJECT_EXEC, exec))
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    exec_remove(exec);
    LEAVE(CUDA_SUCCESS);
}
