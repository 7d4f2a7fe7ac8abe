/* SPDX-License-Identifier: Apache-2.0
 *
 * The fake's streams, events and graphs: see fake_cuda.h for how commands are ordered.
 */
#include "fake_priv.h"

#include <pthread.h>
#include <time.h>

struct CUstream_st *fake_streams;
fake_capture *fake_capturing;

static uint64_t clock_ns = 1;
static fake_capture *captures; /* events name them as long as there are events */

void fake_forget_captures(void) {
    while (captures != NULL) {
        fake_capture *next = captures->next;
        free(captures);
        captures = next;
    }
}

/* ---- sets -------------------------------------------------------------------------------------- */

static void *grow(void *data, size_t n, size_t *cap, size_t elem_bytes) {
    if (n < *cap) { return data; }
    *cap = *cap == 0 ? 8 : 2 * *cap;
    void *grown = realloc(data, *cap * elem_bytes);
    if (grown == NULL) { abort(); }
    return grown;
}

void fake_set_add(fake_set *set, size_t value) {
    for (size_t i = 0; i < set->n; i++) {
        if (set->data[i] == value) { return; }
    }
    set->data = grow(set->data, set->n, &set->cap, sizeof *set->data);
    set->data[set->n++] = value;
}

void fake_set_join(fake_set *set, const fake_set *other) {
    for (size_t i = 0; i < other->n; i++) { fake_set_add(set, other->data[i]); }
}

void fake_set_fini(fake_set *set) {
    free(set->data);
    *set = (fake_set){.data = NULL};
}

/* ---- what a command does ----------------------------------------------------------------------- */

static void *call_host(void *arg) {
    const fake_command *c = arg;
    c->fn(c->ctx);
    return NULL;
}

static void execute_elsewhere(const fake_command *c) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, call_host, (void *)(uintptr_t)c) != 0) { abort(); }
    (void)pthread_join(thread, NULL);
}

static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* All elements in an order of the seed's, no two neighbours one after the other as a rule: a thread that reads what
 * another one writes finds what it should not. */
static void execute_each(const fake_command *c) {
    if (c->n == 0) { return; }
    uint64_t at = fake_random(c->n), step = 1 + fake_random(c->n);
    while (common_divisor(step, c->n) != 1) { step++; }
    for (uint64_t i = 0; i < c->n; i++) {
        c->element(c->args, at);
        at = (at + step) % c->n;
    }
}

void fake_execute(const fake_command *c) {
    const uint64_t begin_ns = fake.tells_time ? ebb__now_ns() : 0;
    clock_ns += 1000 + fake_random(1000);
    switch (c->kind) {
    case FAKE_COPY: memcpy(c->dst, c->src, c->n_bytes); break;
    case FAKE_EACH: execute_each(c); break;
    case FAKE_HOST: execute_elsewhere(c); break;
    case FAKE_RECORD:
        if (c->number > c->event->n_done) {
            c->event->n_done = c->number;
            c->event->time_ns = clock_ns;
        }
        break;
    case FAKE_WAIT: break;
    case FAKE_GRAPH: fake_run_graph(&c->exec->graph); return; /* its nodes came here, too */
    }
    if (fake.tells_time) { clock_ns += ebb__now_ns() - begin_ns; }
}

static bool may_run(const struct CUstream_st *stream) {
    if (stream->first == stream->n) { return false; }
    const fake_command *c = &stream->queue[stream->first];
    return c->kind != FAKE_WAIT || c->event->n_done >= c->number;
}

static bool run_one(void) {
    size_t n = 0;
    for (const struct CUstream_st *s = fake_streams; s != NULL; s = s->next) { n += may_run(s); }
    if (n == 0) { return false; }
    size_t pick = (size_t)fake_random(n);
    struct CUstream_st *s = fake_streams;
    while (!may_run(s) || pick-- > 0) { s = s->next; }
    const fake_command c = s->queue[s->first++];
    if (s->first == s->n) { s->first = s->n = 0; }
    fake_execute(&c);
    return true;
}

void fake_run_until(bool (*done)(const void *ctx), const void *ctx) {
    fake_cuda_unlock();
    while (!done(ctx)) {
        if (run_one()) { continue; }
        (void)fprintf(stderr, "fake_cuda: everything waits\n");
        abort();
    }
    fake_cuda_lock();
}

/* ---- issuing ----------------------------------------------------------------------------------- */

static cudaError_t invalidate(fake_capture *capture, cudaError_t error) {
    capture->invalid = true;
    return fake_set_error(error);
}

cudaError_t fake_refuse_in_capture(void) {
    return fake_capturing == NULL ? cudaSuccess : invalidate(fake_capturing, cudaErrorStreamCaptureUnsupported);
}

static void add_node(cudaStream_t stream, const fake_command *c) {
    struct CUgraph_st *graph = stream->capture->graph;
    graph->nodes = grow(graph->nodes, graph->n, &graph->cap, sizeof *graph->nodes);
    fake_node *node = &graph->nodes[graph->n];
    *node = (fake_node){.command = *c};
    fake_set_join(&node->after, &stream->last);
    stream->last.n = 0;
    fake_set_add(&stream->last, graph->n++);
    fake.n_graph_nodes++;
}

cudaError_t fake_issue(cudaStream_t stream, const fake_command *c) {
    if (stream->capture != NULL) {
        if (stream->capture->invalid) { return fake_set_error(cudaErrorStreamCaptureInvalidated); }
        add_node(stream, c);
        return cudaSuccess;
    }
    stream->queue = grow(stream->queue, stream->n, &stream->cap, sizeof *stream->queue);
    stream->queue[stream->n++] = *c;
    return cudaSuccess;
}

static void pause_ms(uint32_t ms) {
    const struct timespec t = {.tv_nsec = (long)ms * 1000000};
    if (ms > 0) { (void)nanosleep(&t, NULL); }
}

/* A launch returns the error that the runtime remembers, of any call before. */
cudaError_t ebb__cuda_each_on_host(cudaStream_t stream, ebb_cuda_element_fn element, const void *args,
                                   size_t args_bytes, uint64_t n) {
    FAKE_CALL();
    fake_command c = {.kind = FAKE_EACH, .element = element, .n = fake.computes_nothing ? 0 : n};
    if (args_bytes > sizeof c.args) { abort(); }
    memcpy(c.args, args, args_bytes);
    fake.n_launches++;
    if (stream->capture == NULL) { pause_ms(fake.launch_ms); }
    const cudaError_t error = fake_issue(stream, &c);
    const cudaError_t remembered = cudaGetLastError();
    return error != cudaSuccess ? error : remembered;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *ctx) {
    FAKE_CALL();
    const fake_command c = {.kind = FAKE_HOST, .fn = fn, .ctx = ctx};
    return fake_issue(stream, &c);
}

/* ---- streams ----------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream_out, unsigned flags) {
    FAKE_CALL();
    if (flags != cudaStreamNonBlocking) { abort(); }
    cudaStream_t stream = calloc(1, sizeof *stream);
    stream->next = fake_streams;
    fake_streams = stream;
    fake.n_live++;
    *stream_out = stream;
    return cudaSuccess;
}

static bool is_idle(const void *ctx) {
    const struct CUstream_st *stream = ctx;
    return stream->first == stream->n;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    fake_run_until(is_idle, stream);
    struct CUstream_st **at = &fake_streams;
    while (*at != stream) { at = &(*at)->next; }
    *at = stream->next;
    fake_set_fini(&stream->last);
    free(stream->queue);
    free(stream);
    fake.n_live--;
    FAKE_CALL();
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    FAKE_CALL();
    fake.n_syncs++;
    if (stream->capture != NULL) { return invalidate(stream->capture, cudaErrorStreamCaptureUnsupported); }
    fake_run_until(is_idle, stream);
    return cudaSuccess;
}

/* A query makes the command done by the next query. */
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    FAKE_CALL();
    if (is_idle(stream)) { return cudaSuccess; }
    fake_run_until(is_idle, stream);
    return fake_set_error(cudaErrorNotReady);
}

static bool are_idle(const void *ctx) {
    (void)ctx;
    bool idle = true;
    for (const struct CUstream_st *s = fake_streams; s != NULL; s = s->next) { idle = idle && is_idle(s); }
    return idle;
}

bool fake_is_idle(void) {
    return are_idle(NULL);
}

void fake_run_all(void) {
    fake_run_until(are_idle, NULL);
}

cudaError_t cudaDeviceSynchronize(void) {
    FAKE_CALL();
    fake.n_syncs++;
    cudaError_t error = fake_refuse_in_capture();
    if (error != cudaSuccess) { return error; }
    fake_run_until(are_idle, NULL);
    return cudaSuccess;
}

/* ---- events ------------------------------------------------------------------------------------ */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event_out, unsigned flags) {
    FAKE_CALL();
    *event_out = calloc(1, sizeof **event_out);
    (*event_out)->no_timing = flags == cudaEventDisableTiming;
    fake.n_live++;
    return cudaSuccess;
}

/* The runtime frees it when the commands that name it are done. */
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    fake_run_until(are_idle, NULL);
    fake_set_fini(&event->last);
    free(event);
    fake.n_live--;
    FAKE_CALL();
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    FAKE_CALL();
    event->capture = stream->capture;
    if (stream->capture != NULL) {
        event->last.n = 0;
        fake_set_join(&event->last, &stream->last);
        return cudaSuccess;
    }
    const fake_command c = {.kind = FAKE_RECORD, .event = event, .number = ++event->n_issued};
    return fake_issue(stream, &c);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)flags;
    FAKE_CALL();
    if (event->capture != NULL) {
        if (event->capture->over) { return fake_set_error(cudaErrorCapturedEvent); }
        if (stream->capture != NULL && stream->capture != event->capture) {
            return invalidate(stream->capture, cudaErrorStreamCaptureMerge);
        }
        if (stream->capture == NULL) { stream->last.n = 0; }
        stream->capture = event->capture;
        fake_set_join(&stream->last, &event->last);
        return cudaSuccess;
    }
    if (stream->capture != NULL) { return invalidate(stream->capture, cudaErrorStreamCaptureIsolation); }
    if (event->n_issued == 0) { return cudaSuccess; }
    const fake_command c = {.kind = FAKE_WAIT, .event = event, .number = event->n_issued};
    return fake_issue(stream, &c);
}

static bool is_recorded(const void *ctx) {
    const struct CUevent_st *event = ctx;
    return event->n_done == event->n_issued;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    FAKE_CALL();
    fake.n_syncs++;
    if (event->capture != NULL) { return fake_set_error(cudaErrorCapturedEvent); }
    fake_run_until(is_recorded, event);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
    FAKE_CALL();
    if (begin->no_timing || end->no_timing) { return fake_set_error(cudaErrorInvalidResourceHandle); }
    if (!is_recorded(begin) || !is_recorded(end) || begin->n_issued == 0 || end->n_issued == 0) {
        return fake_set_error(cudaErrorNotReady);
    }
    *ms = (float)(((double)end->time_ns - (double)begin->time_ns) * 1e-6);
    return cudaSuccess;
}

/* ---- graphs ------------------------------------------------------------------------------------ */

void fake_graph_fini(struct CUgraph_st *graph) {
    for (size_t i = 0; i < graph->n; i++) { fake_set_fini(&graph->nodes[i].after); }
    free(graph->nodes);
}

void fake_run_graph(const struct CUgraph_st *graph) {
    bool *done = calloc(graph->n + 1, sizeof *done);
    for (size_t n_left = graph->n; n_left > 0; n_left--) {
        size_t i = (size_t)fake_random(graph->n);
        for (bool ready = false; !ready; i = ready ? i : (i + 1) % graph->n) {
            ready = !done[i];
            for (size_t d = 0; d < graph->nodes[i].after.n; d++) {
                ready = ready && done[graph->nodes[i].after.data[d]];
            }
        }
        fake_execute(&graph->nodes[i].command);
        done[i] = true;
    }
    free(done);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    FAKE_CALL();
    if (mode != cudaStreamCaptureModeThreadLocal || fake_capturing != NULL) { abort(); }
    fake_capture *capture = calloc(1, sizeof *capture);
    *capture = (fake_capture){.graph = calloc(1, sizeof *capture->graph), .origin = stream};
    capture->next = captures;
    captures = capture;
    fake.n_live++;
    stream->capture = fake_capturing = capture;
    stream->last.n = 0;
    return cudaSuccess;
}

/* Everything must lie before what the origin has seen. */
static bool is_joined(const fake_capture *capture) {
    bool *seen = calloc(capture->graph->n + 1, sizeof *seen);
    bool joined = true;
    for (size_t i = 0; i < capture->origin->last.n; i++) { seen[capture->origin->last.data[i]] = true; }
    for (size_t i = capture->graph->n; i-- > 0;) { /* edges lead backwards */
        joined = joined && seen[i];
        for (size_t d = 0; d < capture->graph->nodes[i].after.n; d++) {
            seen[capture->graph->nodes[i].after.data[d]] = true;
        }
    }
    free(seen);
    return joined;
}

/* It ends the capture whatever it returns. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph_out) {
    const cudaError_t failed = fake_begin(__func__);
    fake_capture *capture = stream->capture;
    if (capture == NULL || capture->origin != stream) { return fake_set_error(cudaErrorIllegalState); }
    cudaError_t error = capture->invalid ? cudaErrorStreamCaptureInvalidated : failed;
    if (error == cudaSuccess && !is_joined(capture)) { error = cudaErrorStreamCaptureUnjoined; }
    for (struct CUstream_st *s = fake_streams; s != NULL; s = s->next) {
        if (s->capture == capture) { s->capture = NULL; }
    }
    capture->over = true;
    fake_capturing = NULL;
    *graph_out = NULL;
    if (error == cudaSuccess) {
        *graph_out = capture->graph;
        return cudaSuccess;
    }
    fake_graph_fini(capture->graph);
    free(capture->graph);
    fake.n_live--;
    return fake_set_error(error);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec_out, cudaGraph_t graph, unsigned long long flags) {
    (void)flags;
    FAKE_CALL();
    cudaGraphExec_t exec = calloc(1, sizeof *exec);
    for (size_t i = 0; i < graph->n; i++) {
        exec->graph.nodes = grow(exec->graph.nodes, exec->graph.n, &exec->graph.cap, sizeof *exec->graph.nodes);
        fake_node *node = &exec->graph.nodes[exec->graph.n++];
        *node = (fake_node){.command = graph->nodes[i].command};
        fake_set_join(&node->after, &graph->nodes[i].after);
    }
    exec->source = graph;
    fake.n_live++;
    *exec_out = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    fake_graph_fini(graph);
    free(graph);
    fake.n_live--;
    FAKE_CALL();
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    fake_run_until(are_idle, NULL);
    fake_graph_fini(&exec->graph);
    free(exec);
    fake.n_live--;
    FAKE_CALL();
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    FAKE_CALL();
    fake.n_graph_launches++;
    pause_ms(fake.graph_ms);
    const fake_command c = {.kind = FAKE_GRAPH, .exec = exec};
    return fake_issue(stream, &c);
}

/* ---- a graph's nodes ----------------------------------------------------------------------------- */

/* A node's handle is the node of the graph; the executable graph has its like at the same index. */

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n) {
    FAKE_CALL();
    if (nodes == NULL) {
        *n = graph->n;
        return cudaSuccess;
    }
    if (*n > graph->n) { *n = graph->n; }
    for (size_t i = 0; i < *n; i++) { nodes[i] = (cudaGraphNode_t)&graph->nodes[i]; }
    return cudaSuccess;
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type_out) {
    FAKE_CALL();
    const fake_command *c = &((const fake_node *)node)->command;
    *type_out = c->kind == FAKE_COPY   ? cudaGraphNodeTypeMemcpy
                : c->kind == FAKE_EACH ? cudaGraphNodeTypeKernel
                                       : cudaGraphNodeTypeEmpty;
    return cudaSuccess;
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, struct cudaMemcpy3DParms *copy_out) {
    FAKE_CALL();
    const fake_command *c = &((const fake_node *)node)->command;
    if (c->kind != FAKE_COPY) { return fake_set_error(cudaErrorInvalidValue); }
    *copy_out = (struct cudaMemcpy3DParms){.kind = cudaMemcpyDefault, .extent = {c->n_bytes, 1, 1}};
    copy_out->srcPtr.ptr = (void *)(uintptr_t)c->src;
    copy_out->dstPtr.ptr = c->dst;
    return cudaSuccess;
}

/* Launches that are queued keep what they had: here they end first. */
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void *dst, const void *src,
                                               size_t n_bytes, enum cudaMemcpyKind kind) {
    FAKE_CALL();
    fake_run_until(are_idle, NULL);
    for (size_t i = 0; i < exec->source->n; i++) {
        if ((const void *)&exec->source->nodes[i] != (const void *)node) { continue; }
        fake_command *c = &exec->graph.nodes[i].command;
        if (kind != cudaMemcpyHostToDevice || c->dst != dst || c->n_bytes != n_bytes) { abort(); }
        c->src = src;
        return cudaSuccess;
    }
    return fake_set_error(cudaErrorInvalidValue);
}
