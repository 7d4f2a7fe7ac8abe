/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of other planners on programs made by hand: what each of them copies out, computes again or keeps is what its
 * rule says.
 */
#include "plan_support.h"

#define COPY_NS 100

enum { WEIGHTS, A, B, C, X, D, E, E2, F, G, N_TENSORS };

static void add(ebb_program *p, uint32_t phase, bool may_repeat, uint64_t ns, const ebb_access *accesses, uint32_t n) {
    const ebb_choice choice = {.name = "only", .key = 1 + p->steps.n, .flops = (double)ns};
    const ebb_step step = {.name = "step",
                           .kind = "op",
                           .phase = phase,
                           .repeat = may_repeat ? EBB_REPEAT_EXACT : EBB_REPEAT_NEVER,
                           .n_accesses = n,
                           .n_choices = 1};
    assert_int_equal(ebb_program_add_step(p, &step, accesses, &choice), EBB_OK);
}
#define N_OF(...) (uint32_t)(sizeof((const ebb_access[]){__VA_ARGS__}) / sizeof(ebb_access))
#define FORWARD(p, repeats, ns, ...)                                                                                   \
    add((p), EBB_PHASE_FORWARD, (repeats), (ns), (const ebb_access[]){__VA_ARGS__}, N_OF(__VA_ARGS__))
#define BACKWARD(p, ns, ...)                                                                                           \
    add((p), EBB_PHASE_BACKWARD, false, (ns), (const ebb_access[]){__VA_ARGS__}, N_OF(__VA_ARGS__))

/* A and B wait for the backward pass beside D, which has no room then. A is away longest, but B's copy out has ended
 * when D comes. A is made in 10 ns, B in 1000. */
static ebb_program *make_program(bool a_repeats) {
    static const uint64_t bytes[N_TENSORS] = {1, 100, 100, 1, 1, 100, 1, 1, 1, 1};
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "two", 1, &p), EBB_OK);
    for (uint32_t t = 0; t < N_TENSORS; t++) { assert_int_equal(make_tensor(p, bytes[t], t == WEIGHTS, false), t); }
    FORWARD(p, true, 1000, {WEIGHTS, EBB_READ}, {B, EBB_WRITE});
    FORWARD(p, false, 10, {B, EBB_READ}, {C, EBB_WRITE});
    FORWARD(p, a_repeats, 10, {WEIGHTS, EBB_READ}, {A, EBB_WRITE});
    FORWARD(p, false, 150, {A, EBB_READ}, {C, EBB_READ}, {X, EBB_WRITE});
    FORWARD(p, false, 100, {X, EBB_READ}, {D, EBB_WRITE});
    BACKWARD(p, 20, {D, EBB_READ}, {E, EBB_WRITE});
    BACKWARD(p, 60, {E, EBB_READ}, {E2, EBB_WRITE});
    BACKWARD(p, 1000, {B, EBB_READ}, {E2, EBB_READ}, {F, EBB_WRITE});
    BACKWARD(p, 10, {A, EBB_READ}, {F, EBB_READ}, {G, EBB_WRITE});
    BACKWARD(p, 10, {G, EBB_READ}, {WEIGHTS, EBB_UPDATE});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

/* What leaves, or is made again. EBB_NO_TENSOR: nothing does. */
typedef struct decision {
    uint32_t copied, made_again; /* a tensor; a step */
} decision;

static decision decide(const ebb_policy *policy, bool a_repeats, uint64_t copy_ns) {
    ebb_program *p = make_program(a_repeats);
    ebb_draft draft;
    decision d = {EBB_NO_TENSOR, EBB_NO_TENSOR};
    ebb_machine *m = make_plain_machine(EBB_HOST, 1e11 / (double)copy_ns, 1e11 / (double)copy_ns);
    ebb_policy_input input = {.program = p, .machine = m, .mem = ebb__mem_or_default(NULL), .limit_bytes = 250};
    input.tier_bytes[EBB_HOST] = 1000;
    assert_int_equal(ebb__draft_init(&draft, p, NULL), EBB_OK);
    ebb__draft_reset(&draft, p);
    assert_int_equal(policy->draft(&input, &draft), EBB_OK);
    assert_true(ebb__draft_is_valid(&draft, p));
    for (size_t i = 0; i < draft.actions.n; i++) {
        const ebb_action *action = &draft.actions.data[i].action;
        if (action->kind == EBB_ACT_OUT) {
            assert_int_equal(d.copied, EBB_NO_TENSOR);
            d.copied = action->target;
        }
        if (action->kind == EBB_ACT_AGAIN) { d.made_again = action->target; }
    }
    ebb__draft_fini(&draft);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
    return d;
}

static void expect(const ebb_policy *policy, bool a_repeats, uint64_t copy_ns, uint32_t copied, uint32_t made_again) {
    const decision d = decide(policy, a_repeats, copy_ns);
    if (d.copied != copied || d.made_again != made_again) {
        fail_msg("%s: tensor %u leaves and step %u runs again", policy->name, d.copied, d.made_again);
    }
}

/* The most free time; where nothing can be hidden, the most bytes for the time that is lost. */
static void capuchin(void **state) {
    (void)state;
    expect(&ebb__policy_capuchin, true, COPY_NS, A, EBB_NO_TENSOR);
    expect(&ebb__policy_capuchin, true, 100 * COPY_NS, EBB_NO_TENSOR, 2);
    expect(&ebb__policy_capuchin, false, 100 * COPY_NS, EBB_NO_TENSOR, 0);
    expect(&ebb__policy_capuchin, false, 7 * COPY_NS, A, EBB_NO_TENSOR); /* 220 ns are seen, not 1000 */
}

/* The longest idle time against the cheapest to make again. */
static void mu_two(void **state) {
    (void)state;
    expect(&ebb__policy_mu_two, true, COPY_NS, A, EBB_NO_TENSOR);
    expect(&ebb__policy_mu_two, true, 100 * COPY_NS, EBB_NO_TENSOR, 2);
    expect(&ebb__policy_mu_two, false, 100 * COPY_NS, EBB_NO_TENSOR, 0);
    expect(&ebb__policy_mu_two, false, 7 * COPY_NS, A, EBB_NO_TENSOR);
}

/* As coded, a copy out waits for 4 accesses after one that reads, and for 6 after one that writes: here each step has
 * two accesses. How many steps after the tensor's last use before the peak does its copy begin? */
static size_t find_wait(bool is_written, bool as_coded) {
    const uint64_t mib = (uint64_t)1 << 20;
    ebb_program *p = NULL;
    ebb_draft draft;
    size_t n_runs = 0, wait = SIZE_MAX;
    assert_int_equal(ebb_program_create(NULL, "wait", 1, &p), EBB_OK);
    const uint32_t a = make_tensor(p, 4 * mib, false, false), z = make_tensor(p, 1, true, false);
    FORWARD(p, false, 1000000, {z, EBB_READ}, {a, EBB_WRITE});
    FORWARD(p, false, 1000000, {a, is_written ? EBB_UPDATE : EBB_READ}, {z, EBB_UPDATE});
    uint32_t x = z;
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t next = make_tensor(p, i == 6 ? 4 * mib : 1, false, false); /* the peak */
        FORWARD(p, false, 1000000, {x, EBB_READ}, {next, EBB_WRITE});
        x = next;
    }
    FORWARD(p, false, 1000000, {a, EBB_READ}, {x, EBB_READ}, {z, EBB_UPDATE});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    ebb_machine *m = make_plain_machine(EBB_HOST, 1e12, 1e12);
    ebb_policy_input input = {.program = p, .machine = m, .mem = ebb__mem_or_default(NULL), .limit_bytes = 5 * mib};
    input.tier_bytes[EBB_HOST] = 16 * mib;
    input.as_coded = as_coded;
    assert_int_equal(ebb__draft_init(&draft, p, NULL), EBB_OK);
    ebb__draft_reset(&draft, p);
    assert_int_equal(ebb__policy_autoswap_doa.draft(&input, &draft), EBB_OK);
    for (size_t i = 0; i < draft.actions.n; i++) {
        const ebb_action *action = &draft.actions.data[i].action;
        n_runs += action->kind == EBB_ACT_RUN;
        if (action->kind == EBB_ACT_OUT) { wait = n_runs - 2; } /* steps between the use, the second, and the copy */
    }
    ebb__draft_fini(&draft);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
    return wait;
}

static void autoswap_waits_as_coded(void **state) {
    (void)state;
    assert_int_equal(find_wait(false, false), 0);
    assert_int_equal(find_wait(false, true), 1); /* accesses 2 | 4 5 | 6: the first step of access 6 and later */
    assert_int_equal(find_wait(true, true), 2);
}

/* ---- Chen's heuristics ------------------------------------------------------------------------- */

/* Step i makes x[i] from x[i - 1], the backward pass reads all of them; x[0] comes from outside. */
static ebb_program *make_chain(uint32_t n) {
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "chain", 1, &p), EBB_OK);
    const uint32_t weights = make_tensor(p, 1, true, false), first = make_tensor(p, 1, false, false);
    FORWARD(p, true, 10, {first, EBB_WRITE});
    for (uint32_t i = 1; i < n; i++) {
        const uint32_t x = make_tensor(p, 1, false, false);
        FORWARD(p, true, 10, {x - 1, EBB_READ}, {x, EBB_WRITE});
    }
    uint32_t diff = make_tensor(p, 1, false, false);
    FORWARD(p, false, 10, {first + n - 1, EBB_READ}, {diff, EBB_WRITE});
    for (uint32_t i = n; i-- > 0;) {
        const uint32_t next = make_tensor(p, 1, false, false);
        BACKWARD(p, 10, {first + i, EBB_READ}, {diff, EBB_READ}, {next, EBB_WRITE});
        diff = next;
    }
    BACKWARD(p, 10, {diff, EBB_READ}, {weights, EBB_UPDATE});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

/* SIZE_MAX: there is no plan. */
static size_t count_again(const ebb_policy *policy, const ebb_program *p, uint64_t limit_bytes) {
    ebb_machine *m = NULL;
    ebb_draft draft;
    size_t n = 0;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    ebb_policy_input input = {.program = p, .machine = m, .mem = ebb__mem_or_default(NULL), .limit_bytes = limit_bytes};
    assert_int_equal(ebb__draft_init(&draft, p, NULL), EBB_OK);
    ebb__draft_reset(&draft, p);
    const ebb_status st = policy->draft(&input, &draft);
    assert_true(st == EBB_OK || st == EBB_E_NO_FIT);
    for (size_t i = 0; i < draft.actions.n; i++) { n += draft.actions.data[i].action.kind == EBB_ACT_AGAIN; }
    ebb__draft_fini(&draft);
    ebb_machine_destroy(m);
    return st == EBB_OK ? n : SIZE_MAX;
}

/* Of n stages with a border before each but the first, every root of n-th is kept; all else is made again once. */
static void every_root_is_kept(void **state) {
    (void)state;
    for (uint32_t n = 2; n <= 40; n++) {
        ebb_program *p = make_chain(n);
        uint32_t root = 1;
        while (root * root < n) { root++; }
        assert_int_equal(count_again(&ebb__policy_ap_sqrt_n, p, UINT64_MAX), (n - 1) - (n - 1) / root);
        ebb_program_destroy(p);
    }
}

/* In a chain of equal tensors each tensor is an articulation point, so both rules keep every k-th, with the largest
 * number of them that fits. */
static void greedy_keeps_what_fits(void **state) {
    (void)state;
    enum { N = 37 };
    ebb_program *p = make_chain(N);
    size_t before = SIZE_MAX, n_different = 0;
    for (uint64_t limit = 8; limit <= N + 6; limit++) {
        const size_t n = count_again(&ebb__policy_chen_greedy, p, limit);
        assert_int_equal(count_again(&ebb__policy_ap_greedy, p, limit), n);
        assert_true(n <= before);
        if (n == SIZE_MAX) { continue; }
        bool is_every_kth = false;
        for (size_t k = 1; k <= N; k++) { is_every_kth = is_every_kth || n == (N - 1) - (N - 1) / k; }
        assert_true(is_every_kth);
        n_different += n != before;
        before = n;
    }
    assert_true(n_different >= 3);
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capuchin),
        cmocka_unit_test(mu_two),
        cmocka_unit_test(every_root_is_kept),
        cmocka_unit_test(greedy_keeps_what_fits),
        cmocka_unit_test(autoswap_waits_as_coded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
