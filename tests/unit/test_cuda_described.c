/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN itself, without a GPU: it answers for devices that are described to it (cuDNN 9.8 or later). For every
 * convolution of four networks, in three directions and added to a gradient, and of the conformance suite, on two
 * cards, in fp32 and TF32: it has an algorithm that is allowed (but for gradients with uneven padding, which cuDNN gets
 * wrong), which does a bias and a ReLU after it too, and choice 0 needs at most a quarter more workspace than its
 * operands have bytes. Where ResNet-50's branches begin, gradients are added in place. Only the runtime and cuBLASLt
 * are the fake's. Prints what choice 0 needs.
 */
#include "backend/cuda/cuda.h"
#include "backend/cuda/cuda_conv_algorithms.h"
#include "backend/lower.h"
#include "backend/conformance.h"
#include "ebb/ebb.h"
#include "fake_cuda.h"
#include "graph/graph.h"
#include "support.h"

#define MIB ((uint64_t)1 << 20)

#if CUDNN_VERSION >= 90800

/* What the library keeps until the process ends is not ours: our own memory is counted by its hooks. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void); /* overrides the sanitizer's */
int __lsan_is_turned_off(void) {
    return 1;
}

/* What cudaGetDeviceProperties says of them, in the library's words. */
#define CARD(name, generation, bytes, n_processors, shared_bytes, n_blocks, n_threads, clock, memory_clock, cache)     \
    "{\"cudaDeviceId\":0,\"deviceName\":\"" name "\",\"deviceVer\":" generation ",\"driverVer\":13000,"                \
    "\"totalGlobalMem\":" bytes ",\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"           \
    "\"regsPerBlock\":65536,\"multiProcessorCount\":" n_processors ",\"warpSize\":32,"                                 \
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":" shared_bytes ","                             \
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":" n_blocks ","                 \
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":" n_threads ",\"pciDeviceId\":0,\"isTccDriver\":0,"               \
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":" clock ",\"memClockRateKHz\":" memory_clock ","                       \
    "\"l2CacheSize\":" cache "}"

typedef struct card {
    const char *name, *json;
} card;

static const card cards[] = {
    {"H200",
     CARD("NVIDIA H200", "900", "150754934784", "132", "232448", "32", "2048", "1980000", "3201000", "62914560")},
    {"RTX 3060", CARD("NVIDIA GeForce RTX 3060", "860", "12622168064", "28", "101376", "16", "1536", "1777000",
                      "7501000", "2359296")},
};

/* The library's answers do not depend on who compiled this: all cards in the long form, where no sanitizer is; else the
 * first. */
static size_t n_cards(void) {
    return (size_t)by_form(1, 1, sizeof cards / sizeof cards[0]);
}

typedef struct net {
    const char *name;
    int64_t batch, image;
} net;

/* At the sizes of make bench-cuda. */
static const net nets[] = {
    {"resnet50", 256, 224}, {"vgg16", 128, 224}, {"alexnet", 1024, 227}, {"densenet121", 128, 224}};

enum { N_DIRECTIONS = EBB_OP_CONV_BWD_DATA_ADD - EBB_OP_CONV + 1 };

typedef struct described {
    failing_mem mem;
    ebb_device *device;
    ebb_cuda_libraries *libraries;
} described;

static void must(cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS) { fail_msg("%s", cudnnGetErrorString(status)); }
}

static void open_card(described *d, const card *c, bool tf32) {
    *d = (described){0};
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    fake_cuda_reset(1);
    options.mem = &failing_mem_init(&d->mem, 0)->hooks;
    options.tf32 = tf32;
    assert_int_equal(ebb__backend_cuda.open(&options, &d->device), EBB_OK);
    assert_int_equal(ebb__cuda_libraries((ebb_cuda_device *)d->device, &d->libraries), EBB_OK);
    must(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d->libraries->described));
    must(cudnnBackendSetAttribute(d->libraries->described, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                  (int64_t)strlen(c->json) + 1, c->json));
    must(cudnnBackendFinalize(d->libraries->described));
}

static void close_card(described *d) {
    cudnnBackendDescriptor_t described_card = d->libraries->described;
    ebb__backend_cuda.close(d->device);
    must(cudnnBackendDestroyDescriptor(described_card));
    assert_int_equal(fake.n_live, 0);
    assert_int_equal(d->mem.n_live, 0);
}

static uint64_t operand_bytes(const ebb_cuda_conv_key *k) {
    const int64_t *const operands[] = {k->src, k->weights, k->dst};
    uint64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t n_bytes = sizeof(float);
        for (int d = 0; d < 4; d++) { n_bytes *= (uint64_t)operands[i][d]; }
        sum += n_bytes;
    }
    return sum;
}

static bool is_of_cudnn(const ebb_kernel *kernel) {
    return strncmp(kernel->algorithm, "cudnn", 5) == 0;
}

static void check_conv(const ebb_cuda_conv *conv) {
    assert_true(conv->n_algorithms >= 1 && conv->n_algorithms <= EBB_CUDA_CONV_MAX_ALGORITHMS);
    assert_true(conv->algorithms[0].workspace_bytes <= operand_bytes(&conv->key) / 4 * 5);
}

static void lower_net(const net *n, ebb_device *device) {
    ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    ebb_graph *graph = NULL;
    ebb_lowered *low = NULL;
    options.batch = n->batch;
    options.height = options.width = n->image;
    assert_int_equal(ebb_zoo_build(n->name, &options, &graph), EBB_OK);
    assert_int_equal(ebb_graph_train(graph, &optimizer, false), EBB_OK);
    if (ebb_lower(graph, device, &low) != EBB_OK) { fail_msg("%s: %s", n->name, ebb_last_error()); }
    size_t n_sums = 0;
    for (size_t i = 0; i < low->steps.n; i++) {
        const ebb_lowered_step *step = &low->steps.data[i];
        if (step->op == UINT32_MAX) { continue; }
        const ebb_op_kind kind = low->graph->ops.data[step->op].kind;
        if (kind < EBB_OP_CONV || kind > EBB_OP_CONV_BWD_DATA_ADD) { continue; }
        assert_true(is_of_cudnn(step->kernel[0]));
        n_sums += strcmp(low->program->steps.data[i].kind, "conv_bwd_data_add") == 0;
    }
    assert_int_equal(n_sums, strcmp(n->name, "resnet50") == 0 ? 16 : 0);
    ebb_lowered_destroy(low);
    ebb_graph_destroy(graph);
}

/* In all directions, the first layer's gradient of its images among them, which no training asks for. Each is there
 * forward, with its bias and ReLU. */
static void find_all_directions(described *d) {
    const size_t n_convs = d->libraries->convs.n;
    for (size_t i = 0; i < n_convs; i++) {
        ebb_cuda_conv_key key = d->libraries->convs.data[i]->key;
        const ebb_cuda_conv *conv = NULL;
        key.bias = key.relu = 0;
        for (int k = 1; k < N_DIRECTIONS; k++) { /* the last adds to what is there */
            key.direction = EBB_OP_CONV + k;
            if (ebb__cuda_conv_find((ebb_cuda_device *)d->device, &key, &conv) != EBB_OK) {
                fail_msg("%s", ebb_last_error());
            }
        }
    }
}

typedef struct figures {
    size_t n, n_over_1_mib, n_tails;
    uint64_t sum_bytes, most_bytes, most_offered_bytes;
} figures;

static void note(figures *f, const ebb_cuda_conv *conv) {
    const uint64_t n_bytes = conv->algorithms[0].workspace_bytes;
    f->n++;
    f->n_tails += conv->has_tail;
    assert_true(conv->has_tail == (conv->key.bias != 0 || conv->key.relu != 0));
    f->n_over_1_mib += n_bytes > MIB;
    f->sum_bytes += n_bytes;
    f->most_bytes = n_bytes > f->most_bytes ? n_bytes : f->most_bytes;
    for (uint32_t i = 0; i < conv->n_algorithms; i++) {
        const uint64_t offered = conv->algorithms[i].workspace_bytes;
        f->most_offered_bytes = offered > f->most_offered_bytes ? offered : f->most_offered_bytes;
    }
}

/* Count the gradients of images that cuDNN adds by the same algorithms, in the same order, as it makes them without
 * adding. */
static size_t count_same(const described *d) {
    size_t n_same = 0;
    for (size_t i = 0; i < d->libraries->convs.n; i++) {
        const ebb_cuda_conv *adds = d->libraries->convs.data[i], *makes = NULL;
        ebb_cuda_conv_key key = adds->key;
        if (key.direction != EBB_OP_CONV_BWD_DATA_ADD) { continue; }
        key.direction = EBB_OP_CONV_BWD_DATA;
        assert_int_equal(ebb__cuda_conv_find((ebb_cuda_device *)d->device, &key, &makes), EBB_OK);
        bool same = adds->n_algorithms == makes->n_algorithms;
        for (uint32_t k = 0; k < adds->n_algorithms && same; k++) {
            const ebb_cuda_conv_algorithm *a = &adds->algorithms[k], *b = &makes->algorithms[k];
            same = a->name == b->name && a->workspace_bytes == b->workspace_bytes;
        }
        n_same += same;
    }
    return n_same;
}

static size_t check_net(const net *n, const card *c, bool tf32) {
    const bool wants_tails = strcmp(n->name, "vgg16") == 0 || strcmp(n->name, "alexnet") == 0;
    figures f[N_DIRECTIONS] = {0};
    described d;
    open_card(&d, c, tf32);
    lower_net(n, d.device);
    find_all_directions(&d);
    const size_t n_convs = d.libraries->convs.n;
    for (size_t i = 0; i < n_convs; i++) {
        const ebb_cuda_conv *conv = d.libraries->convs.data[i];
        check_conv(conv);
        note(&f[conv->key.direction - EBB_OP_CONV], conv);
    }
    for (int k = 0; k < N_DIRECTIONS; k++) {
        assert_int_equal(f[k].n, n_convs / N_DIRECTIONS);
        printf("%-9s %-5s %-12s %-17s %3zu convolutions, %2zu with their bias and ReLU, choice 0: %zu over 1 MiB, %llu "
               "bytes at most; of all choices %llu\n",
               c->name, tf32 ? "tf32" : "fp32", n->name, ebb__op_name((ebb_op_kind)(EBB_OP_CONV + k)), f[k].n,
               f[k].n_tails, f[k].n_over_1_mib, (unsigned long long)f[k].most_bytes,
               (unsigned long long)f[k].most_offered_bytes);
    }
    printf("%-9s %-5s %-12s %zu of %zu gradients are added with the same algorithms\n", c->name, tf32 ? "tf32" : "fp32",
           n->name, count_same(&d), n_convs / N_DIRECTIONS);
    assert_int_equal(f[0].n_tails, wants_tails ? f[0].n : 0);
    close_card(&d);
    return n_convs;
}

static void networks(void **state) {
    (void)state;
    for (size_t c = 0; c < n_cards(); c++) {
        for (int tf32 = 0; tf32 < 2; tf32++) {
            size_t n = 0;
            for (size_t i = 0; i < sizeof nets / sizeof nets[0]; i++) {
                n += check_net(&nets[i], &cards[c], tf32 != 0);
            }
            assert_int_equal(n, N_DIRECTIONS * 103);
        }
    }
}

/* Backward, cuDNN gets such padding wrong. */
static bool is_lopsided(const problem *p) {
    const ebb_op_attr *a = &p->attr;
    return p->kind != EBB_OP_CONV && (a->pad_begin[0] != a->pad_end[0] || a->pad_begin[1] != a->pad_end[1]);
}

/* The suite's convolutions: grouped, dilated, with uneven padding, of odd sizes. */
static void check_suite(const problem_list *problems, const card *c, bool tf32) {
    described d;
    size_t n_own = 0;
    open_card(&d, c, tf32);
    for (size_t i = 0; i < problems->n; i++) {
        const problem *p = &problems->data[i];
        const ebb_kernel_desc desc = {.kind = p->kind,
                                      .attr = p->attr,
                                      .n_in = p->n_in,
                                      .n_out = p->n_out,
                                      .n_inout = p->n_inout,
                                      .operand = p->operand};
        ebb_kernel *kernel = NULL;
        if (p->kind < EBB_OP_CONV || p->kind > EBB_OP_CONV_BWD_DATA_ADD) { continue; }
        if (ebb__backend_cuda.kernel_create(d.device, &desc, &kernel) != EBB_OK) {
            fail_msg("%s: %s", p->text, ebb_last_error());
        }
        n_own += !is_of_cudnn(kernel);
        if (is_of_cudnn(kernel) == is_lopsided(p)) { fail_msg("%s, %s: %s", c->name, p->text, ebb_last_error()); }
        ebb__backend_cuda.kernel_destroy(kernel);
    }
    size_t n_tails = 0, n_plain = 0;
    for (size_t i = 0; i < d.libraries->convs.n; i++) {
        const ebb_cuda_conv *conv = d.libraries->convs.data[i];
        const bool wants_tail = conv->key.bias != 0 || conv->key.relu != 0;
        n_plain += !wants_tail;
        n_tails += conv->has_tail;
        assert_true(conv->has_tail == wants_tail);
    }
    printf("%-9s %-5s the suite    %zu gradients are added with the same algorithms\n", c->name, tf32 ? "tf32" : "fp32",
           count_same(&d));
    assert_int_equal(n_plain, 98);
    assert_int_equal(n_tails, 26);
    assert_true(n_own > 0);
    close_card(&d);
}

static void suite(void **state) {
    (void)state;
    problem_list problems = {0};
    problems_init(&problems);
    for (size_t c = 0; c < n_cards(); c++) {
        check_suite(&problems, &cards[c], false);
        check_suite(&problems, &cards[c], true);
    }
    problems_fini(&problems);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(networks), cmocka_unit_test(suite)};
    printf("cuDNN %zu\n", cudnnGetVersion());
    if (cudnnGetVersion() < 90800) {
        printf("skipped: devices are described to cuDNN 9.8 or later\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    printf("skipped: devices are described to cuDNN 9.8 or later; the headers are of %d\n", CUDNN_VERSION);
    return 77;
}

#endif
