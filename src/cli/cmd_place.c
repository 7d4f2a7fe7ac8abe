/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb place`: offsets alone. Reads buffers with known lifetimes, places them with one solver or with all of them,
 * checks every answer, and shows its peak beside the bound; writes the answer as a CSV and as a picture.
 */
#include "place_command.h"

#include <inttypes.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_ALIGNMENT ((uint64_t)1 << 62)
#define LARGE_BLOCK (1 << 20)

typedef struct place_values {
    const char *solver, *out, *svg, *device;
    uint64_t capacity, steps, alignment, first_segment;
    float time_s; /* NAN: not asked for */
    bool json, compare;
} place_values;

#define AT(member) offsetof(place_values, member)
static const ebb_cli_option place_options[] = {
    {"--solver", EBB_CLI_TEXT, AT(solver), "S", "what places (below; best)"},
    {"--compare", EBB_CLI_FLAG, AT(compare), NULL, "all solvers, side by side"},
    {"--capacity", EBB_CLI_BYTES, AT(capacity), "SIZE", "ask whether it fits this; a peak of that much is good enough"},
    {"--steps", EBB_CLI_AMOUNT, AT(steps), "N",
     "search steps after which the best so far will do (some seconds' worth, more for few buffers)"},
    {"--time", EBB_CLI_NUMBER, AT(time_s), "S", "seconds instead: the answer may then differ from run to run"},
    {"--alignment", EBB_CLI_BYTES, AT(alignment), "N", "of every offset, a power of two (1, or the program's)"},
    {"--first-segment", EBB_CLI_BYTES, AT(first_segment), "BYTES",
     "what best-fit and first-fit take at the beginning, as CnMem's initial size (0)"},
    {"-o", EBB_CLI_TEXT, AT(out), "FILE", "write the buffers with their offsets, as a CSV"},
    {"--svg", EBB_CLI_TEXT, AT(svg), "FILE", "draw time and offsets"},
    {"--device", EBB_CLI_TEXT, AT(device), "N|NAME|list",
     "of a recording: whose blocks (an accelerator's with the highest peak); list shows what there is"},
    {"--json", EBB_CLI_FLAG, AT(json), NULL, "one object per solver on stdout, for programs"},
};

/* The problem, and the best answer so far. */
typedef struct subject {
    const char *path;
    const place_values *values;
    ebb_cli_placing placing;
    ebb_place_problem problem;
    ebb_cli_place_facts facts;
    uint64_t *offsets, *best_offsets; /* of the solver at hand; of the lowest peak, when any_best */
    ebb_cli_answer best;
    bool any_best;
} subject;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- the command line ------------------------------------------------------------------------- */

static bool is_solver(const char *name) {
    const char *known = NULL;
    for (size_t i = 0; (known = ebb_place_solver_name(i, NULL)) != NULL; i++) {
        if (strcmp(known, name) == 0) { return true; }
    }
    return false;
}

static const char *solver_name(const void *ctx, size_t i) {
    (void)ctx;
    return ebb_place_solver_name(i, NULL);
}

static bool is_dash(const char *path) {
    return path != NULL && strcmp(path, "-") == 0;
}

static int check_outputs(const place_values *values, const char *input) {
    if (is_dash(values->out) || is_dash(values->svg)) {
        return ebb__cli_usage("place: - is what is read; what is written goes to a file, or to /dev/stdout");
    }
    const ebb_cli_output both[] = {{"-o", values->out}, {"--svg", values->svg}};
    if (!ebb__cli_are_apart(&ebb__cli_place, both, 2)) { return EBB_EXIT_USAGE; }
    const char *outputs[] = {values->out, values->svg};
    const char *read = is_dash(input) ? "/dev/stdin" : input; /* it may be a file */
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        if (outputs[i] == NULL) { continue; }
        if (ebb__cli_is_same_file(outputs[i], read)) { return ebb__cli_usage("place: %s is what is read", outputs[i]); }
        const ebb_status status = ebb_path_check_writable(outputs[i]);
        if (status != EBB_OK) { return ebb__cli_failed(status); }
    }
    return EBB_EXIT_DONE;
}

static int check_values(const place_values *values, const ebb_cli_arguments *arguments) {
    if (arguments->n == 0) {
        return ebb__cli_usage("place: say which file, or - for standard input; see ebb place --help");
    }
    if (values->solver != NULL && values->compare) { return ebb__cli_usage("place: --solver or --compare, not both"); }
    if (values->solver != NULL && !is_solver(values->solver)) {
        char near[128];
        return ebb__cli_usage(
            "place: there is no solver %s%s; see ebb place --help", values->solver,
            ebb_suggest(values->solver, strlen(values->solver), solver_name, NULL, near, sizeof near));
    }
    if (values->steps > 0 && !isnan(values->time_s)) { return ebb__cli_usage("place: --steps or --time, not both"); }
    if (values->time_s <= 0.0f) { return ebb__cli_usage("place: --time is more than 0"); }
    const bool is_power = (values->alignment & (values->alignment - 1)) == 0; /* or 0: not asked for */
    if (!is_power || values->alignment > MAX_ALIGNMENT) {
        return ebb__cli_usage("place: --alignment is a power of two below 2^63, not %" PRIu64, values->alignment);
    }
    return check_outputs(values, arguments->at[0]);
}

/* ---- the clock -------------------------------------------------------------------------------- */

/* A solver asks this now and then; true ends it when its time is over. */
typedef struct watch {
    double start_s, limit_s; /* limit 0: none */
} watch;

static bool look_at_watch(void *ctx) {
    const watch *w = ctx;
    return w->limit_s > 0.0 && now_s() - w->start_s >= w->limit_s;
}

/* ---- solving ---------------------------------------------------------------------------------- */

/* The problem's own fault, found by the library and not by a file's reader, who would have named the line. */
static int failed_problem(const subject *s, ebb_status status) {
    fflush(stdout);
    ebb__cli_say("%s: %s", s->path, ebb_last_error());
    if (s->values->json && status == EBB_E_NO_FIT) { ebb__cli_place_print_no_fit(&s->facts, ebb_last_error()); }
    return status == EBB_E_ARGUMENT ? EBB_EXIT_INPUT : ebb__cli_exit_code(status);
}

static int check_answer(const subject *s, const ebb_cli_answer *answer) {
    uint64_t peak_bytes = 0;
    ebb_status status = ebb_place_check(&s->problem, NULL, s->offsets, &peak_bytes);
    if (status == EBB_OK && peak_bytes <= answer->result.peak_bytes) { return EBB_EXIT_DONE; }
    fflush(stdout);
    ebb__cli_say("%s: the solver %s placed wrongly: %s", s->path, answer->solver,
                 status != EBB_OK ? ebb_last_error() : "its peak is higher than it says");
    return EBB_EXIT_IO;
}

static void keep_if_best(subject *s, const ebb_cli_answer *answer) {
    if (s->any_best && answer->result.peak_bytes >= s->best.result.peak_bytes) { return; }
    uint64_t *swap = s->best_offsets;
    s->best_offsets = s->offsets;
    s->offsets = swap;
    s->best = *answer;
    s->any_best = true;
}

/* Place with one solver. One that cannot take the problem, or gives up, is an answer too: a refusal. */
static int solve(subject *s, const char *solver, ebb_cli_answer *answer) {
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    const bool timed = !isnan(s->values->time_s);
    watch w = {.limit_s = timed ? (double)s->values->time_s : 0.0};
    char what[64];
    snprintf(what, sizeof what, "placing by %.40s", solver);
    ebb__progress_tell(what, 0, 0);
    options.solver = solver;
    options.enough_bytes = s->values->capacity;
    options.first_segment_bytes = s->values->first_segment;
    options.max_steps = timed ? UINT64_MAX : s->values->steps;
    options.iteration_starts = s->placing.starts;
    options.n_iteration_starts = s->placing.n_starts;
    options.stop = look_at_watch;
    options.stop_ctx = &w;
    *answer = (ebb_cli_answer){.solver = solver};
    w.start_s = now_s();
    ebb_status status = ebb_place_solve(&s->problem, &options, s->offsets, &answer->result);
    answer->time_s = now_s() - w.start_s;
    ebb__progress_clear();
    if (status == EBB_E_UNSUPPORTED || status == EBB_E_LIMIT) {
        answer->gave_up = status == EBB_E_LIMIT;
        snprintf(answer->refused, sizeof answer->refused, "%s%s", answer->gave_up ? "given up: " : "",
                 ebb_last_error());
        return EBB_EXIT_DONE;
    }
    if (status != EBB_OK) { return failed_problem(s, status); }
    const int code = check_answer(s, answer);
    if (code == EBB_EXIT_DONE) { keep_if_best(s, answer); }
    return code;
}

static int solve_one(subject *s) {
    ebb_cli_answer answer;
    const char *solver = s->values->solver != NULL ? s->values->solver : ebb_place_solver_name(0, NULL);
    int code = solve(s, solver, &answer);
    if (code != EBB_EXIT_DONE) { return code; }
    const bool refused = answer.refused[0] != '\0';
    if (s->values->json) {
        ebb__cli_place_print_json(&s->facts, &answer);
    } else if (!refused) {
        ebb__cli_place_print(&s->facts, &answer);
    }
    if (!refused) { return EBB_EXIT_DONE; }
    ebb__cli_say("%s: %s: %s", s->path, solver, answer.refused);
    return answer.gave_up ? EBB_EXIT_NO : EBB_EXIT_USAGE;
}

static int solve_all(subject *s) {
    ebb_cli_answer answer;
    const char *solver = NULL;
    if (!s->values->json) { ebb__cli_place_print_head(&s->facts); }
    for (size_t i = 0; (solver = ebb_place_solver_name(i, NULL)) != NULL; i++) {
        const int code = solve(s, solver, &answer);
        if (code != EBB_EXIT_DONE) { return code; }
        if (s->values->json) {
            ebb__cli_place_print_json(&s->facts, &answer);
        } else {
            ebb__cli_place_print_row(&s->facts, &answer);
        }
    }
    return EBB_EXIT_DONE;
}

/* ---- does it fit? ----------------------------------------------------------------------------- */

static size_t largest_item(const ebb_place_problem *problem) {
    size_t found = 0;
    for (size_t i = 1; i < problem->n_items; i++) {
        if (problem->items[i].size_bytes > problem->items[found].size_bytes) { found = i; }
    }
    return found;
}

/* No peak is lower than this, given a bound with rounded sizes: what lies highest is not rounded up. */
static uint64_t least_peak(const subject *s, uint64_t bound_bytes) {
    const uint64_t most_less_bytes = s->problem.alignment_bytes - 1;
    return bound_bytes > most_less_bytes ? bound_bytes - most_less_bytes : 0;
}

/* A problem that is too large for any solver is refused before one begins. */
static int check_capacity(const subject *s) {
    char why[512];
    const uint64_t capacity = s->facts.capacity_bytes;
    if (capacity == 0 || s->facts.bound_bytes <= capacity) { return EBB_EXIT_DONE; }
    const size_t largest = largest_item(&s->problem);
    if (s->problem.items[largest].size_bytes > capacity) {
        snprintf(why, sizeof why, "the buffer '%.80s' has %" PRIu64 " bytes, the capacity is %" PRIu64,
                 ebb_place_file_id(s->placing.file, largest), s->problem.items[largest].size_bytes, capacity);
    } else {
        snprintf(why, sizeof why, "no placement is below the bound of %" PRIu64 " bytes, the capacity is %" PRIu64,
                 s->facts.bound_bytes, capacity);
    }
    ebb__cli_say("%s: %s", s->path, why);
    if (s->values->json) { ebb__cli_place_print_no_fit(&s->facts, why); }
    return EBB_EXIT_NO;
}

/* Whether the best answer fits; where it does not, whether another could. */
static int judge_capacity(const subject *s) {
    if (s->facts.capacity_bytes == 0 || !s->any_best || ebb__cli_place_fits(&s->facts, &s->best)) {
        return EBB_EXIT_DONE;
    }
    const ebb_place_result *r = &s->best.result;
    fflush(stdout);
    if (least_peak(s, r->bound_bytes) > s->facts.capacity_bytes) {
        ebb__cli_say("%s: no placement within %" PRIu64 " bytes exists: the search proved a bound of %" PRIu64, s->path,
                     s->facts.capacity_bytes, r->bound_bytes);
    } else {
        ebb__cli_say("%s: no placement within %" PRIu64 " bytes was found (the best has %" PRIu64
                     "); that there is none is not proven",
                     s->path, s->facts.capacity_bytes, r->peak_bytes);
    }
    return EBB_EXIT_NO;
}

/* ---- the command ------------------------------------------------------------------------------ */

static int write_files(const subject *s) {
    if (!s->any_best) { return EBB_EXIT_DONE; }
    ebb_status status = EBB_OK;
    ebb__progress_tell("writing", 0, 0);
    if (s->values->out != NULL) { status = ebb_place_file_write(s->placing.file, s->best_offsets, s->values->out); }
    if (status == EBB_OK && s->values->svg != NULL) {
        char title[256];
        ebb_place_picture picture = EBB_PLACE_PICTURE_INIT;
        snprintf(title, sizeof title, "%s, placed by %s", s->path, s->best.solver);
        picture.title = title;
        picture.time_name = s->placing.time_name;
        picture.peak_bytes = s->best.result.peak_bytes;
        picture.bound_bytes = s->best.result.bound_bytes;
        status = ebb_place_file_draw(s->placing.file, s->best_offsets, &picture, s->values->svg);
    }
    ebb__progress_clear();
    return status == EBB_OK ? EBB_EXIT_DONE : ebb__cli_failed(status);
}

static int subject_init(subject *s) {
    ebb__progress_tell("reading the buffers", 0, 0);
    const int code = ebb__cli_place_load(s->path, s->values->device, &s->placing);
    ebb__progress_clear();
    if (code != EBB_EXIT_DONE) { return code; }
    if (strcmp(s->path, "-") == 0) { s->path = "standard input"; }
    s->problem = ebb_place_file_problem(s->placing.file);
    if (s->values->alignment > s->problem.alignment_bytes) { s->problem.alignment_bytes = s->values->alignment; }
    s->facts.n_buffers = s->problem.n_items;
    s->facts.alignment_bytes = s->problem.alignment_bytes;
    s->facts.capacity_bytes = s->values->capacity;
    if (s->values->capacity > 0 || s->values->compare || s->problem.fixed != NULL) { /* else an answer says it */
        ebb__progress_tell("finding the bound", 0, 0);
        const ebb_status status = ebb_place_bound(&s->problem, NULL, &s->facts.bound_bytes);
        ebb__progress_clear();
        if (status != EBB_OK) { return failed_problem(s, status); }
        s->facts.bound_bytes = least_peak(s, s->facts.bound_bytes);
    }
    const size_t n = s->problem.n_items > 0 ? s->problem.n_items : 1;
    s->offsets = malloc(n * sizeof *s->offsets);
    s->best_offsets = malloc(n * sizeof *s->best_offsets);
    if (s->offsets != NULL && s->best_offsets != NULL) { return EBB_EXIT_DONE; }
    ebb__cli_say("out of host memory");
    return EBB_EXIT_IO;
}

static void subject_fini(subject *s) {
    free(s->offsets);
    free(s->best_offsets);
    free(s->placing.starts);
    ebb_place_file_destroy(s->placing.file);
}

/* Each stage takes arrays of megabytes and gives them back. The C library would keep them for itself after the first
 * few: of two million buffers, a fifth more than is ever in use. */
static void give_back_at_once(void) {
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
#endif
}

static int run_place(const ebb_cli_command *command, int argc, char **argv) {
    place_values values = {.time_s = NAN};
    ebb_cli_arguments arguments;
    int code = EBB_EXIT_DONE;
    if (!ebb__cli_parse(command, argc, argv, &values, &arguments, &code)) { return code; }
    if (ebb__cli_lists_devices(values.device) && arguments.n > 0) { return ebb__cli_list_devices(arguments.at[0]); }
    code = check_values(&values, &arguments);
    if (code != EBB_EXIT_DONE) { return code; }
    subject s = {.path = arguments.at[0], .values = &values};
    give_back_at_once();
    code = subject_init(&s);
    if (code == EBB_EXIT_DONE) { code = check_capacity(&s); }
    if (code == EBB_EXIT_DONE) { code = values.compare ? solve_all(&s) : solve_one(&s); }
    if (code == EBB_EXIT_DONE) { code = write_files(&s); }
    if (code == EBB_EXIT_DONE) { code = judge_capacity(&s); }
    const int closed = ebb__cli_close_output();
    subject_fini(&s);
    return code != EBB_EXIT_DONE ? code : closed;
}

static void print_solvers(FILE *out) {
    const char *name = NULL, *about = "";
    ebb__cli_print_paragraph(out,
                             "FILE is a CSV (docs/place-format.md), a program, a plan, a trace, or a recording that "
                             "`ebb import` reads; - is standard input.");
    fprintf(out, "\nsolvers (the first is the default):\n");
    for (size_t i = 0; (name = ebb_place_solver_name(i, &about)) != NULL; i++) {
        ebb__cli_print_about(out, 18, name, about);
    }
}

const ebb_cli_command ebb__cli_place = {
    .name = "place",
    .arguments = "FILE|- [option ...]",
    .about = "place buffers with known lifetimes in one arena, and show how good that is",
    .options = place_options,
    .n_options = sizeof place_options / sizeof place_options[0],
    .n_arguments_max = 1,
    .run = run_place,
    .more_help = print_solvers,
};
