/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterations as CUDA graphs: a run's iteration is issued once as it is, captured when it comes again, and from then on
 * launched as one.
 *
 *   iteration   begin says   what happens
 *   first       issue        commands go to their streams; which streams, and whether the host is called, is noted.
 *                            The libraries load what they load lazily, which a capture would not bear
 *   second      issue        commands are captured; end instantiates the graph and launches it
 *   later       no issue     end launches the graph
 *   trial       issue        where copies have streams of their own, some iterations are given to the streams again;
 *                            the run goes on with what was faster, streams or another capture
 *
 * A capture begins on the device's own stream and spreads: each stream joins at its first command, after `fork`, and
 * is joined at the end. A launch comes after all that these streams were given before it, and they wait for it:
 *
 *   compute  ... ─ join ┐                      ┌ wait done ─ ...
 *   out      ... ─ join ┤                      ├ wait done ─ ...
 *   in       ... ─ join ┤                      ├ wait done ─ ...
 *   own                 └ state ─ graph ─ done ┘
 *
 * Invariants
 *  1. Everything that differs between iterations lies at fixed addresses: the state (cuda_state.c), which is sent
 *     before the launch, and the ports. Only inputs that are fed early have other memory in each iteration: the graph's
 *     copies of them are pointed there before each launch.
 *  2. An iteration that calls the host (the file tier's) is never captured: the file's waits belong to one stream, not
 *     to everything. So nothing in a graph runs on the host.
 *  3. A wait in a capture for an event from before it is met by the launch's place after all of that.
 *  4. A run dies with its streams, and its graph with the first of them: a run_id that comes again is another run.
 *  5. The end of an iteration is a border: a copy that would go on into the next one is waited for. Streams alone
 *     have no such border. Whether that costs more than issuing depends on the plan and the card, so it is tried.
 *
 * A capture that fails, be it a command, the graph's making or its first launch, is given up with a warning: nothing of
 * it has run, so the caller issues the iteration again, and streams alone do that run from then on. One that is left
 * without its end is abandoned by whatever synchronises next.
 */
#include "backend/cuda/cuda_priv.h"

typedef enum phase { PHASE_FIRST, PHASE_SECOND, PHASE_REPLAY, PHASE_TRIAL, PHASE_STREAMS } phase;

/* A copy in the graph whose source changes from launch to launch. */
typedef struct feed {
    const ebb_run_state *state;
    int32_t port;
    void *dst;
    const void *src; /* as the graph has it */
    uint64_t bytes;
    cudaGraphNode_t node;
} feed;

#define TRIAL_ITERATIONS 4u /* that are timed for each way, after one that does not count; the fastest decides */

_Static_assert(EBB_CUDA_MAX_STATES <= 64, "an iteration's slots are the bits of 64");

struct ebb_cuda_iteration {
    uint64_t run_id;
    uint64_t number; /* of its latest capture, from 1; 0: none */
    phase phase;
    bool has_calls;
    uint64_t slots; /* bit s: kernels in it read state s */
    cudaEvent_t fork, done;
    bool is_launched;             /* the latest capture's graph, once or more: done was recorded */
    bool is_settled;              /* graph or streams was tried, or there is nothing to try */
    uint64_t begin_ns;            /* of the iteration before */
    uint64_t graph_ns, stream_ns; /* the fastest iteration of each */
    uint32_t n_timed;             /* iterations of the phase whose time is known, the uncounted one among them */
    cudaGraph_t graph;            /* of exec: its nodes name the copies */
    cudaGraphExec_t exec;
    EBB_VEC(feed) feeds;
    EBB_VEC(ebb_stream *) streams;
};

/* ---- the device's iterations ------------------------------------------------------------------- */

static ebb_cuda_iteration *find_run(const ebb_cuda_device *device, uint64_t run_id) {
    for (size_t i = 0; i < device->iterations.n; i++) {
        if (device->iterations.data[i]->run_id == run_id) { return device->iterations.data[i]; }
    }
    return NULL;
}

static ebb_cuda_iteration *find_number(const ebb_cuda_device *device, uint64_t number) {
    for (size_t i = 0; i < device->iterations.n; i++) {
        if (device->iterations.data[i]->number == number) { return device->iterations.data[i]; }
    }
    return NULL;
}

static cudaError_t destroy_graph(ebb_cuda_iteration *it) {
    const cudaError_t error = it->exec != NULL ? cudaGraphExecDestroy(it->exec) : cudaSuccess;
    if (it->graph != NULL) { (void)cudaGraphDestroy(it->graph); }
    it->exec = NULL;
    it->graph = NULL;
    return error;
}

static void free_iteration(const ebb_mem *mem, ebb_cuda_iteration *it) {
    (void)destroy_graph(it);
    if (it->done != NULL) { (void)cudaEventDestroy(it->done); }
    if (it->fork != NULL) { (void)cudaEventDestroy(it->fork); }
    (void)cudaGetLastError();
    EBB_VEC_FINI(mem, &it->feeds);
    EBB_VEC_FINI(mem, &it->streams);
    ebb__free(mem, it);
}

static ebb_status add_run(ebb_cuda_device *device, uint64_t run_id, ebb_cuda_iteration **it_out) {
    EBB_TRY(EBB_RESERVE(device->base.mem, &device->iterations, 1));
    ebb_cuda_iteration *it = ebb__calloc(device->base.mem, 1, sizeof *it);
    if (it == NULL) { return EBB_E_NO_MEMORY; }
    it->run_id = run_id;
    cudaError_t error = cudaEventCreateWithFlags(&it->fork, cudaEventDisableTiming);
    if (error == cudaSuccess) { error = cudaEventCreateWithFlags(&it->done, cudaEventDisableTiming); }
    if (error != cudaSuccess) {
        free_iteration(device->base.mem, it);
        return ebb__cuda_fail(error, "a graph's events");
    }
    device->iterations.data[device->iterations.n++] = it;
    *it_out = it;
    return EBB_OK;
}

static bool has_stream(const ebb_cuda_iteration *it, const ebb_stream *stream) {
    for (size_t i = 0; i < it->streams.n; i++) {
        if (it->streams.data[i] == stream) { return true; }
    }
    return false;
}

void ebb__cuda_capture_abandon(ebb_cuda_device *device) {
    if (device->capturing) {
        cudaGraph_t graph = NULL;
        (void)cudaStreamEndCapture(device->stream, &graph);
        if (graph != NULL) { (void)cudaGraphDestroy(graph); }
        (void)cudaGetLastError();
    }
    device->capturing = false;
    device->current = NULL;
}

void ebb__cuda_capture_forget(ebb_cuda_device *device, const ebb_stream *stream) {
    size_t n_kept = 0;
    for (size_t i = 0; i < device->iterations.n; i++) {
        ebb_cuda_iteration *it = device->iterations.data[i];
        if (stream != NULL && !has_stream(it, stream)) {
            device->iterations.data[n_kept++] = it;
            continue;
        }
        if (it->is_launched) { (void)cudaStreamSynchronize(device->stream); }
        free_iteration(device->base.mem, it);
    }
    device->iterations.n = n_kept;
    if (stream == NULL) { EBB_VEC_FINI(device->base.mem, &device->iterations); }
}

/* ---- what commands ask ------------------------------------------------------------------------- */

ebb_status ebb__cuda_capture_join(ebb_stream *stream) {
    ebb_cuda_device *device = ebb__cuda_of(stream->device);
    ebb_cuda_iteration *it = device->current;
    if (it == NULL) { return EBB_OK; }
    if (!has_stream(it, stream)) { EBB_TRY(EBB_PUSH(device->base.mem, &it->streams, stream)); }
    if (!device->capturing || stream->joined == it->number) { return EBB_OK; }
    EBB_CUDA(cudaStreamWaitEvent(stream->handle, it->fork, 0), "joining a capture");
    stream->joined = it->number;
    return EBB_OK;
}

ebb_status ebb__cuda_capture_note_call(ebb_cuda_device *device) {
    if (device->capturing) { return ebb_fail(EBB_E_INTERNAL, "cuda: an iteration calls the host that did not before"); }
    if (device->current != NULL) { device->current->has_calls = true; }
    return EBB_OK;
}

bool ebb__cuda_capture_keeps_state(ebb_cuda_device *device, uint32_t slot) {
    if (!device->capturing) { return false; }
    device->current->slots |= (uint64_t)1 << slot;
    return true;
}

ebb_status ebb__cuda_capture_note_feed(ebb_cuda_device *device, const ebb_run_state *state, int32_t port, void *dst,
                                       uint64_t bytes) {
    if (!device->capturing || !state->ports_move) { return EBB_OK; }
    const feed noted = {.state = state, .port = port, .dst = dst, .src = state->port[port], .bytes = bytes};
    return EBB_PUSH(device->base.mem, &device->current->feeds, noted);
}

uint64_t ebb__cuda_capture_number(const ebb_cuda_device *device) {
    return device->capturing ? device->current->number : 0;
}

bool ebb__cuda_capture_done(const ebb_cuda_device *device, uint64_t number, cudaEvent_t *done_out) {
    const ebb_cuda_iteration *it = find_number(device, number);
    if (it == NULL || !it->is_launched) { return false; }
    *done_out = it->done;
    return true;
}

/* ---- capture and launch ------------------------------------------------------------------------ */

static void set_phase(ebb_cuda_iteration *it, phase next) {
    it->phase = next;
    it->n_timed = 0;
}

static ebb_status begin_capture(ebb_cuda_device *device, ebb_cuda_iteration *it) {
    EBB_CUDA(cudaStreamBeginCapture(device->stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
    it->number = ++device->n_captures; /* one that is given up must not be taken for the next */
    it->is_launched = false;
    it->feeds.n = 0;
    device->capturing = true;
    device->current = it;
    EBB_CUDA(cudaEventRecord(it->fork, device->stream), "beginning a capture");
    return EBB_OK;
}

static ebb_status join_streams(ebb_cuda_device *device, const ebb_cuda_iteration *it, bool captured) {
    for (size_t i = 0; i < it->streams.n; i++) {
        const ebb_stream *stream = it->streams.data[i];
        if (captured && stream->joined != it->number) { continue; }
        EBB_CUDA(cudaEventRecord(stream->join, stream->handle), "joining a stream");
        EBB_CUDA(cudaStreamWaitEvent(device->stream, stream->join, 0), "joining a stream");
    }
    return EBB_OK;
}

/* If the node is the copy of a feed. */
static ebb_status take_feed(ebb_cuda_iteration *it, cudaGraphNode_t node) {
    enum cudaGraphNodeType type;
    struct cudaMemcpy3DParms copy;
    EBB_CUDA(cudaGraphNodeGetType(node, &type), "looking for a graph's feeds");
    if (type != cudaGraphNodeTypeMemcpy) { return EBB_OK; }
    EBB_CUDA(cudaGraphMemcpyNodeGetParams(node, &copy), "looking for a graph's feeds");
    for (size_t f = 0; f < it->feeds.n; f++) {
        feed *noted = &it->feeds.data[f];
        if (copy.dstPtr.ptr == noted->dst && copy.srcPtr.ptr == noted->src) { noted->node = node; }
    }
    return EBB_OK;
}

static ebb_status find_feeds(ebb_cuda_device *device, ebb_cuda_iteration *it) {
    size_t n = 0;
    if (it->feeds.n == 0) { return EBB_OK; }
    EBB_CUDA(cudaGraphGetNodes(it->graph, NULL, &n), "looking for a graph's feeds");
    cudaGraphNode_t *nodes = ebb__calloc(device->base.mem, n, sizeof(cudaGraphNode_t));
    if (nodes == NULL) { return EBB_E_NO_MEMORY; }
    const cudaError_t error = cudaGraphGetNodes(it->graph, nodes, &n);
    ebb_status st = error == cudaSuccess ? EBB_OK : ebb__cuda_fail(error, "looking for a graph's feeds");
    for (size_t i = 0; st == EBB_OK && i < n; i++) { st = take_feed(it, nodes[i]); }
    ebb__free(device->base.mem, nodes);
    for (size_t f = 0; st == EBB_OK && f < it->feeds.n; f++) {
        if (it->feeds.data[f].node == NULL) { st = ebb_fail(EBB_E_INTERNAL, "cuda: a graph has no copy of a feed"); }
    }
    return st;
}

static ebb_status end_capture(ebb_cuda_device *device, ebb_cuda_iteration *it) {
    EBB_TRY(join_streams(device, it, true));
    device->capturing = false; /* whatever becomes of it */
    device->current = NULL;
    EBB_CUDA(cudaStreamEndCapture(device->stream, &it->graph), "capturing an iteration");
    EBB_CUDA(cudaGraphInstantiate(&it->exec, it->graph, 0), "making an iteration's graph (streams alone do without)");
    EBB_TRY(find_feeds(device, it));
    set_phase(it, PHASE_REPLAY);
    return EBB_OK;
}

static ebb_status point_feeds(ebb_cuda_iteration *it) {
    for (size_t f = 0; f < it->feeds.n; f++) {
        feed *noted = &it->feeds.data[f];
        const void *src = noted->state->port[noted->port];
        if (src == noted->src) { continue; }
        EBB_CUDA(cudaGraphExecMemcpyNodeSetParams1D(it->exec, noted->node, noted->dst, src, noted->bytes,
                                                    cudaMemcpyHostToDevice),
                 "feeding a graph");
        noted->src = src;
    }
    return EBB_OK;
}

static ebb_status launch(ebb_cuda_device *device, ebb_cuda_iteration *it) {
    EBB_TRY(join_streams(device, it, false));
    EBB_TRY(point_feeds(it));
    for (uint32_t slot = 0; slot < EBB_CUDA_MAX_STATES; slot++) {
        if ((it->slots >> slot & 1u) != 0) { EBB_TRY(ebb__cuda_state_send(device, slot, device->stream)); }
    }
    EBB_CUDA(cudaGraphLaunch(it->exec, device->stream), "launching an iteration");
    it->is_launched = true;
    EBB_CUDA(cudaEventRecord(it->done, device->stream), "launching an iteration");
    for (size_t i = 0; i < it->streams.n; i++) {
        EBB_CUDA(cudaStreamWaitEvent(it->streams.data[i]->handle, it->done, 0), "launching an iteration");
    }
    return EBB_OK;
}

/* The captured commands have not run, and from now on streams alone run them. Events that were recorded in the capture
 * stand for nothing, so the streams' earlier commands, for which they stood before, are waited for here. */
static ebb_status go_on_with_streams(ebb_cuda_device *device, ebb_cuda_iteration *it) {
    ebb__log(EBB_LOG_WARN, "an iteration cannot be a graph and goes on with streams alone: %s", ebb_last_error());
    ebb__cuda_capture_abandon(device);
    it->phase = PHASE_STREAMS;
    for (size_t i = 0; i < it->streams.n; i++) {
        EBB_CUDA(cudaStreamSynchronize(it->streams.data[i]->handle), "giving up a capture");
    }
    return EBB_OK;
}

static ebb_status capture_and_launch(ebb_cuda_device *device, ebb_cuda_iteration *it, ebb_status issued,
                                     bool *again_out) {
    ebb_status st = issued;
    if (st == EBB_OK) { st = ebb__cuda_enter(device); }
    if (st == EBB_OK) { st = end_capture(device, it); }
    if (st == EBB_OK) { st = launch(device, it); }
    if (st == EBB_OK || it->is_launched) { return st; }
    EBB_TRY(go_on_with_streams(device, it));
    *again_out = true;
    return EBB_OK;
}

/* ---- graph or streams -------------------------------------------------------------------------- */

/* Issued commands record their events anew, so a graph that was left for them cannot be launched again: what its events
 * stand for would be the trial's. It is captured once more. */
static ebb_status settle(ebb_cuda_device *device, ebb_cuda_iteration *it) {
    const bool graph = it->graph_ns <= it->stream_ns;
    it->is_settled = true;
    ebb__log(EBB_LOG_INFO, "an iteration takes %.3f ms as a graph, %.3f ms with streams, and goes on %s",
             (double)it->graph_ns * 1e-6, (double)it->stream_ns * 1e-6, graph ? "as a graph" : "with streams");
    EBB_CUDA(cudaStreamSynchronize(device->stream), "settling an iteration"); /* the graph's last launch */
    EBB_CUDA(destroy_graph(it), "settling an iteration");
    set_phase(it, graph ? PHASE_SECOND : PHASE_STREAMS);
    return EBB_OK;
}

/* At an iteration's begin: the time since the last one's is the last one's. */
static ebb_status time_iteration(ebb_cuda_device *device, ebb_cuda_iteration *it) {
    const uint64_t now_ns = ebb__now_ns(), ns = now_ns - it->begin_ns;
    it->begin_ns = now_ns;
    if (it->is_settled || (it->phase != PHASE_REPLAY && it->phase != PHASE_TRIAL)) { return EBB_OK; }
    uint64_t *least_ns = it->phase == PHASE_REPLAY ? &it->graph_ns : &it->stream_ns;
    if (it->n_timed++ == 0) {
        *least_ns = UINT64_MAX;
        return EBB_OK;
    }
    *least_ns = ebb_min_u64(*least_ns, ns);
    if (it->n_timed <= TRIAL_ITERATIONS) { return EBB_OK; }
    if (it->phase == PHASE_TRIAL) { return settle(device, it); }
    if (it->streams.n > 1) {
        set_phase(it, PHASE_TRIAL);
    } else {
        it->is_settled = true;
    }
    return EBB_OK;
}

/* ---- table entries ----------------------------------------------------------------------------- */

ebb_status ebb__cuda_iteration_begin(ebb_device *base, uint64_t run_id, bool *issue_out) {
    ebb_cuda_device *device = ebb__cuda_of(base);
    EBB_TRY(ebb__cuda_enter(device));
    ebb__cuda_capture_abandon(device);
    ebb_cuda_iteration *it = find_run(device, run_id);
    if (it == NULL && !device->no_capture) { EBB_TRY(add_run(device, run_id, &it)); }
    if (it != NULL) { EBB_TRY(time_iteration(device, it)); }
    if (it != NULL && it->phase == PHASE_SECOND) {
        if (begin_capture(device, it) != EBB_OK) { EBB_TRY(go_on_with_streams(device, it)); }
    } else if (it != NULL && it->phase == PHASE_FIRST) {
        device->current = it;
    }
    *issue_out = it == NULL || it->phase != PHASE_REPLAY;
    return EBB_OK;
}

ebb_status ebb__cuda_iteration_end(ebb_device *base, uint64_t run_id, ebb_status issued, bool *again_out) {
    ebb_cuda_device *device = ebb__cuda_of(base);
    ebb_cuda_iteration *it = find_run(device, run_id);
    *again_out = false;
    if (it != NULL && it->phase == PHASE_SECOND) { return capture_and_launch(device, it, issued, again_out); }
    device->current = NULL;
    if (it == NULL || issued != EBB_OK) { return issued; }
    EBB_TRY(ebb__cuda_enter(device));
    if (it->phase == PHASE_FIRST) { it->phase = it->has_calls || it->streams.n == 0 ? PHASE_STREAMS : PHASE_SECOND; }
    return it->phase == PHASE_REPLAY ? launch(device, it) : EBB_OK;
}
