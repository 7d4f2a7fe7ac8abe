/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress line: what is being done, how far it is, and how long it will take. On a terminal it fits the width, and
 * is removed before anything else is printed. Where stderr is not a terminal, the same is printed as a line whenever
 * nothing else was printed for two seconds. After the first minute lines get rarer, with the time passed, down to one
 * per minute, so a log of hours stays short. EBB_PROGRESS_S says how many seconds instead, 0 for never.
 *
 * A thread of its own writes the line: on a terminal a few times per second, so the time on it grows even while the
 * library says nothing. It writes only between a tell and the next clear, so code that prints clears first and need not
 * lock.
 */
#include "cli.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define TICK_S 0.2
#define FIRST_EVERY_S 1.5    /* without a terminal: a line is there before two seconds are over */
#define LAST_EVERY_S 60.0    /* without a terminal, once much time has passed */
#define EVERY_OF_PASSED 30.0 /* between the two: this part of the time passed */
#define MOST_EVERY_S 1e6
#define TIME_FROM_S 1.0 /* before, no time is shown */
#define LEFT_FROM_S 0.5 /* before, too little was seen to tell what is left */
#define MOST_LATE_S 1.0 /* "0 s left" is said for this long */
#define USUAL_COLUMNS 80
#define MOST_COLUMNS 512
#define LOG_COLUMNS 96 /* without a terminal, after "ebb: " */
#define N_PHASES 4

/* The progress under one name. After an evaluation the phase of steps goes on, with its time counted in. */
typedef struct phase {
    char what[64];
    uint64_t n_first, n_done, n;
    double begin_s, told_s;
} phase;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    pthread_t thread;
    bool is_terminal, has_thread, ends, shows; /* shows: there is a line on the terminal */
    bool is_told;
    double every_s;            /* without a terminal, what was asked for: 0 for no lines; < 0: nothing was */
    double begin_s, printed_s; /* of the program; when something was printed last */
    phase phases[N_PHASES];
    phase *now;
    size_t n_phases; /* begun so far */
    char detail[256];
} line = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- the text ---------------------------------------------------------------------------------- */

static size_t columns(void) {
    struct winsize size;
    const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    const size_t n = is_known ? size.ws_col : USUAL_COLUMNS;
    return n < MOST_COLUMNS ? n : MOST_COLUMNS;
}

static const char *time_text(double s, char buf[32]) {
    if (s < 99.5) {
        snprintf(buf, 32, "%.0f s", s);
    } else if (s < 99.5 * 60) {
        snprintf(buf, 32, "%.0f min", s / 60);
    } else {
        snprintf(buf, 32, "%.1f h", s / 3600);
    }
    return buf;
}

/* " 12 of 100, 3 min left". The time passed, ", 4 s so far", where what is left is not known (yet), all pieces are
 * done, or this one has taken longer than all that are left should have. */
static void describe(const phase *p, double now, char *buf, size_t n_bytes) {
    char text[32];
    const double passed_s = now - p->begin_s;
    const uint64_t n_since = p->n_done - p->n_first;
    size_t at = 0;
    buf[0] = '\0';
    if (p->n > 0) { at += (size_t)snprintf(buf, n_bytes, " %" PRIu64 " of %" PRIu64, p->n_done, p->n); }
    const double each_s = n_since > 0 ? (p->told_s - p->begin_s) / (double)n_since : 0.0;
    const double left_s = each_s * (double)(p->n - p->n_done) - (now - p->told_s);
    if (n_since > 0 && p->n_done < p->n && passed_s >= LEFT_FROM_S && left_s > -MOST_LATE_S) {
        snprintf(buf + at, n_bytes - at, ", %s left", time_text(left_s > 0.0 ? left_s : 0.0, text));
    } else if (passed_s >= TIME_FROM_S) {
        snprintf(buf + at, n_bytes - at, "%s %s so far", p->n > 0 ? "," : ":", time_text(passed_s, text));
    }
}

static void draw(double now) {
    char text[MOST_COLUMNS], how_far[96];
    const size_t n_columns = line.is_terminal ? columns() : LOG_COLUMNS;
    describe(line.now, now, how_far, sizeof how_far);
    snprintf(text, n_columns, "%s%s%s%s", line.now->what, how_far, line.detail[0] != '\0' ? ": " : "", line.detail);
    fprintf(stderr, line.is_terminal ? "\r%s\033[K" : "ebb: %s\n", text);
    fflush(stderr);
    line.shows = line.is_terminal;
    line.printed_s = now;
}

static void erase(void) {
    if (!line.shows) { return; }
    fprintf(stderr, "\r\033[K");
    fflush(stderr);
    line.shows = false;
}

/* ---- the thread -------------------------------------------------------------------------------- */

/* The most seconds without a line. */
static double patience_s(double now) {
    if (line.is_terminal) { return TICK_S; }
    if (line.every_s >= 0.0) { return line.every_s; }
    const double s = (now - line.begin_s) / EVERY_OF_PASSED;
    return s < FIRST_EVERY_S ? FIRST_EVERY_S : s > LAST_EVERY_S ? LAST_EVERY_S : s;
}

/* Wait this long, or until the program ends. */
static void wait_for(double s) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    const int64_t ns = until.tv_nsec + (s > 0.0 ? (int64_t)(s * 1e9) : 0);
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    (void)pthread_cond_timedwait(&line.ended, &line.lock, &until);
}

static void *tick(void *arg) {
    (void)pthread_mutex_lock(&line.lock);
    while (!line.ends) {
        const double before = now_s();
        wait_for(line.is_terminal ? TICK_S : line.printed_s + patience_s(before) - before);
        const double now = now_s();
        const bool is_due = line.is_terminal || now - line.printed_s >= patience_s(now);
        if (is_due && line.is_told && !line.ends) { draw(now); }
        if (is_due) { line.printed_s = now; }
    }
    (void)pthread_mutex_unlock(&line.lock);
    return arg;
}

/* The main thread takes all signals. */
static void start(void) {
    sigset_t all, before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    line.has_thread = pthread_create(&line.thread, NULL, tick, NULL) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* What the environment says; less than 0 where it says nothing that is a time. */
static double seconds_between_lines(void) {
    const char *text = getenv("EBB_PROGRESS_S");
    char *end = NULL;
    const double s = text != NULL ? strtod(text, &end) : -1.0;
    if (text == NULL || end == text || *end != '\0' || !(s >= 0.0)) { return -1.0; }
    if (s > 0.0 && s < TICK_S) { return TICK_S; }
    return s < MOST_EVERY_S ? s : MOST_EVERY_S;
}

void ebb__progress_begin(void) {
    line.is_terminal = isatty(STDERR_FILENO) == 1;
    line.every_s = seconds_between_lines();
    line.begin_s = line.printed_s = now_s();
}

void ebb__progress_end(void) {
    ebb__progress_clear();
    if (!line.has_thread) { return; }
    (void)pthread_mutex_lock(&line.lock);
    line.ends = true;
    (void)pthread_cond_signal(&line.ended);
    (void)pthread_mutex_unlock(&line.lock);
    (void)pthread_join(line.thread, NULL);
    line.has_thread = false;
}

/* ---- what is told ------------------------------------------------------------------------------ */

/* The phase of this name; it begins anew where n_done went back. */
static phase *find_phase(const char *what, uint64_t n_done, uint64_t n, double now) {
    phase *found = NULL;
    for (size_t i = 0; i < N_PHASES && found == NULL; i++) {
        if (strcmp(line.phases[i].what, what) == 0) { found = &line.phases[i]; }
    }
    const bool goes_on = found != NULL && (n > 0 ? n_done >= found->n_done && n == found->n : found == line.now);
    if (found == NULL) { found = &line.phases[line.n_phases++ % N_PHASES]; }
    if (!goes_on) {
        snprintf(found->what, sizeof found->what, "%s", what);
        found->n_first = n_done;
        found->begin_s = now;
    }
    return found;
}

static bool shows_any(void) {
    return line.is_terminal || line.every_s != 0.0;
}

static void tell(void *ctx, const char *what, uint64_t n_done, uint64_t n) {
    (void)ctx;
    if (shows_any() && !line.has_thread) { start(); }
    if (!line.has_thread) { return; }
    (void)pthread_mutex_lock(&line.lock);
    const double now = now_s();
    line.now = find_phase(what, n_done, n, now);
    line.now->n_done = n_done;
    line.now->n = n;
    line.now->told_s = now;
    line.detail[0] = '\0';
    line.is_told = true;
    (void)pthread_mutex_unlock(&line.lock);
}

void ebb__progress_tell(const char *what, uint64_t n_done, uint64_t n) {
    tell(NULL, what, n_done, n);
}

void ebb__progress_detail(const char *fmt, ...) {
    va_list args;
    if (!line.has_thread) { return; }
    (void)pthread_mutex_lock(&line.lock);
    va_start(args, fmt);
    vsnprintf(line.detail, sizeof line.detail, fmt, args);
    va_end(args);
    (void)pthread_mutex_unlock(&line.lock);
}

ebb_progress ebb__progress(void) {
    return (ebb_progress){.tell = shows_any() ? tell : NULL};
}

void ebb__progress_clear(void) {
    (void)pthread_mutex_lock(&line.lock);
    erase();
    line.is_told = false;
    line.printed_s = now_s();
    (void)pthread_mutex_unlock(&line.lock);
}

void ebb__progress_hold(void) {
    (void)pthread_mutex_lock(&line.lock);
    erase();
    line.printed_s = now_s();
}

void ebb__progress_go_on(void) {
    (void)pthread_mutex_unlock(&line.lock);
}
