/* SPDX-License-Identifier: Apache-2.0
 *
 * The iteration of every network of the zoo, found without the marks, is the one that the marks name; of malloc and
 * free alone too; under a budget, where copies come in another order each time, its length is near, and all are
 * counted, or all but one that happens to differ from two that are the same.
 */
#include "ebb/train.h"
#include "iteration_fixture.h"

#define N_TRIES 4
#define N_RECORDED 3u

static void record(const char *net, double budget_percent) {
    ebb_trainer_options o = EBB_TRAINER_OPTIONS_INIT;
    ebb_trainer *trainer = NULL;
    ebb_step_result step;
    o.session.net = net;
    o.session.backend = "dry";
    o.session.policy = budget_percent > 0.0 ? "budget" : "liveness";
    o.session.budget_percent = budget_percent;
    o.session.batch = 2;
    o.n_steps = N_RECORDED + 1;
    o.record_path = test_path;
    o.n_record_steps = N_RECORDED;
    if (ebb_trainer_create(&o, &trainer, NULL, NULL) != EBB_OK) { fail_msg("%s: %s", net, ebb_last_error()); }
    for (bool done = false; !done;) { assert_int_equal(ebb_trainer_step(trainer, &step, &done), EBB_OK); }
    assert_int_equal(ebb_trainer_record_status(trainer), EBB_OK);
    ebb_trainer_destroy(trainer);
}

/* What the marks say, in events of the trace without them and without what else is left out. */
typedef struct truth {
    uint64_t n_events, first, length, count;
} truth;

static bool is_kept(const ebb_trace_event *event, bool only_memory) {
    const bool is_memory = event->kind == EBB_TRACE_ALLOC || event->kind == EBB_TRACE_FREE;
    return is_memory || (!only_memory && event->kind != EBB_TRACE_MARK);
}

static ebb_iteration find(bool only_memory, truth *t) {
    ebb_trace_reader *r = NULL;
    ebb_iteration_finder *finder = NULL;
    ebb_trace_event event;
    ebb_iteration found;
    *t = (truth){.count = 0};
    assert_int_equal(ebb_trace_reader_open(NULL, test_path, &r), EBB_OK);
    assert_int_equal(ebb_iteration_finder_create(NULL, r, &finder), EBB_OK);
    for (bool done = false;;) {
        assert_int_equal(ebb_trace_reader_next(r, &event, &done), EBB_OK);
        if (done) { break; }
        if (event.kind == EBB_TRACE_MARK && event.mark == EBB_TRACE_ITERATION_BEGIN && t->count++ == 0) {
            t->first = t->n_events;
        }
        if (!is_kept(&event, only_memory)) { continue; }
        t->n_events++;
        assert_int_equal(ebb_iteration_finder_add(finder, &event), EBB_OK);
    }
    assert_int_equal(t->count, N_RECORDED);
    t->length = (t->n_events - t->first) / N_RECORDED;
    assert_int_equal(ebb_iteration_finder_find(finder, &found), EBB_OK);
    ebb_iteration_finder_destroy(finder);
    ebb_trace_reader_close(r);
    return found;
}

static void every_network_has_its_iteration(void **state) {
    (void)state;
    const char *net = NULL;
    for (size_t i = 0; (net = ebb_zoo_name(i, NULL)) != NULL; i++) {
        if (strchr(net, ':') != NULL) { continue; } /* a family */
        record(net, 0.0);
        for (int only_memory = 0; only_memory < 2; only_memory++) {
            truth t;
            const ebb_iteration found = find(only_memory != 0, &t);
            print_message("%s: %llu events\n", net, (unsigned long long)t.n_events);
            assert_true(found.found);
            assert_int_equal(found.source, EBB_ITERATION_FROM_EVENTS);
            assert_int_equal(found.length_events, t.length);
            assert_int_equal(found.first_event, t.first);
            assert_int_equal(found.count, t.count);
            assert_true(found.regularity == 1.0);
        }
    }
}

/* Of two iterations that are the same, a third may be none. */
static bool is_about(const ebb_iteration *found, const truth *t) {
    const uint64_t some = t->length / 16;
    const bool has_most = found->count + 1 >= t->count && found->count <= t->count;
    const bool has_length = found->length_events > t->length - some && found->length_events < t->length + some;
    return found->found && has_most && has_length && (found->first_event + some - t->first) % t->length < 2 * some;
}

/* Threads of their own make the copies, so their events come at other places in each iteration, and a busy machine
 * makes that worse. One recording in a few has to be regular enough. */
static void under_a_budget_it_is_about_the_same(void **state) {
    (void)state;
    bool is_found = false;
    for (int i = 0; i < N_TRIES && !is_found; i++) {
        truth t;
        record("resnet20", 75.0);
        const ebb_iteration found = find(false, &t);
        is_found = is_about(&found, &t);
    }
    assert_true(is_found);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_network_has_its_iteration),
        cmocka_unit_test(under_a_budget_it_is_about_the_same),
    };
    return cmocka_run_group_tests(tests, setup_path, teardown_path);
}
