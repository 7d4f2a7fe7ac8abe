/* SPDX-License-Identifier: Apache-2.0
 *
 * The picture of blocks, time by address. The MAX_EXACT blocks with the greatest area (bytes x life) are written one by
 * one, with what is told of them when they are clicked; the rest is added to a grid whose cells say how full they are
 * and of what role. So the picture's bytes do not grow with the recording, and what is left out as a block of its own
 * is smaller than anything that is drawn as one.
 */
#include "report/report_page_priv.h"

#define MAX_EXACT ((size_t)16000)
#define MAX_ACCESSES ((size_t)40000) /* of all blocks */
#define MAX_BLOCK_ACCESSES 64u
#define GRID_COLUMNS 1024u
#define GRID_ROWS 256u
#define N_CELLS ((size_t)GRID_COLUMNS * GRID_ROWS)
#define FLAG_BEFORE 1u
#define FLAG_PEAK 2u
#define FLAG_KEPT 4u

typedef struct drawn {
    uint32_t block, n_accesses; /* accesses that are told */
} drawn;

typedef struct picture {
    ebb_report_page *page;
    size_t n, n_exact;
    uint64_t *y;     /* [n] */
    uint64_t top;    /* of y */
    uint32_t *order; /* [n]: by falling area */
    drawn *exact;    /* [n_exact]: by birth */
    float *cells;    /* [EBB_N_ROLES][N_CELLS]: share of the cell that is held */
} picture;

static uint64_t born_x(const picture *p, const ebb_study_block *block) {
    return ebb__report_page_x(p->page, block->born_ns, block->born_event);
}

static uint64_t died_x(const picture *p, const ebb_study_block *block) {
    return block->died_event == EBB_STUDY_UNKNOWN ? p->page->end
                                                  : ebb__report_page_x(p->page, block->died_ns, block->died_event);
}

/* ---- which -------------------------------------------------------------------------------------- */

/* Of floats that are not negative, the bits have the numbers' order. */
static uint64_t falling_key(double area) {
    uint64_t bits = 0;
    memcpy(&bits, &area, sizeof bits);
    return ~bits;
}

static ebb_status order_by_area(picture *p, uint64_t *key) {
    for (size_t i = 0; i < p->n; i++) {
        const ebb_study_block block = ebb_study_get_block(p->page->report->study, i);
        EBB_ASSERT(born_x(p, &block) <= died_x(p, &block) && block.role < EBB_N_ROLES);
        const double life = (double)(died_x(p, &block) - born_x(p, &block)) + 1.0;
        key[i] = p->y[i] == EBB_TRACE_NONE ? UINT64_MAX : falling_key(life * (double)block.size_bytes);
        p->order[i] = (uint32_t)i;
    }
    EBB_TRY(ebb__sort_by_key(p->page->mem, p->order, p->n, key));
    while (p->n > 0 && p->y[p->order[p->n - 1]] == EBB_TRACE_NONE) { p->n--; } /* not drawn at all */
    p->n_exact = p->n < MAX_EXACT ? p->n : MAX_EXACT;
    return EBB_OK;
}

static uint64_t by_birth(const void *item) {
    return ((const drawn *)item)->block; /* they are numbered by birth */
}

/* The greatest blocks have their accesses told, as long as there is room. */
static ebb_status choose(picture *p) {
    p->exact = ebb__alloc(p->page->mem, p->n_exact + 1, sizeof *p->exact);
    if (p->exact == NULL) { return EBB_E_NO_MEMORY; }
    size_t n_left = p->page->by_time ? MAX_ACCESSES : 0;
    for (size_t i = 0; i < p->n_exact; i++) {
        const ebb_study_block block = ebb_study_get_block(p->page->report->study, p->order[i]);
        const uint64_t n = block.n_reads + block.n_writes + 2 * block.n_copies;
        const uint32_t n_told = n <= MAX_BLOCK_ACCESSES && n <= n_left ? (uint32_t)n : 0;
        p->exact[i] = (drawn){.block = p->order[i], .n_accesses = n_told};
        n_left -= n_told;
    }
    return ebb__sort_items(p->page->mem, p->exact, p->n_exact, sizeof *p->exact, by_birth);
}

/* ---- one by one --------------------------------------------------------------------------------- */

typedef int64_t column_fn(picture *p, size_t i, const ebb_study_block *block);

static int64_t size_of(picture *p, size_t i, const ebb_study_block *block) {
    (void)p, (void)i;
    return (int64_t)block->size_bytes;
}

static int64_t y_of(picture *p, size_t i, const ebb_study_block *block) {
    (void)block;
    return (int64_t)p->y[p->exact[i].block];
}

static int64_t number_of(picture *p, size_t i, const ebb_study_block *block) {
    (void)block;
    return (int64_t)p->exact[i].block;
}

static int64_t life_of(picture *p, size_t i, const ebb_study_block *block) {
    (void)i;
    return (int64_t)(died_x(p, block) - born_x(p, block));
}

/* The difference to the block before: small numbers are short. */
static int64_t birth_of(picture *p, size_t i, const ebb_study_block *block) {
    if (i == 0) { return (int64_t)born_x(p, block); }
    const ebb_study_block before = ebb_study_get_block(p->page->report->study, p->exact[i - 1].block);
    EBB_ASSERT(p->exact[i - 1].block < p->exact[i].block && before.born_event < block->born_event);
    return (int64_t)(born_x(p, block) - born_x(p, &before));
}

static int64_t role_of(picture *p, size_t i, const ebb_study_block *block) {
    (void)p, (void)i;
    return (int64_t)block->role;
}

static int64_t reads_of(picture *p, size_t i, const ebb_study_block *block) {
    (void)p, (void)i;
    return (int64_t)block->n_reads;
}

static int64_t writes_of(picture *p, size_t i, const ebb_study_block *block) {
    (void)p, (void)i;
    return (int64_t)block->n_writes;
}

static int64_t idle_of(picture *p, size_t i, const ebb_study_block *block) {
    (void)p, (void)i;
    return block->longest_idle_ns == EBB_STUDY_UNKNOWN ? -1 : (int64_t)block->longest_idle_ns;
}

static int64_t flags_of(picture *p, size_t i, const ebb_study_block *block) {
    (void)p, (void)i;
    return (int64_t)((block->before ? FLAG_BEFORE : 0) | (block->live_at_peak ? FLAG_PEAK : 0) |
                     (block->died_event == EBB_STUDY_UNKNOWN ? FLAG_KEPT : 0));
}

static int64_t row_of(picture *p, size_t i, const ebb_study_block *block) {
    (void)p, (void)i;
    return (int64_t)block->row;
}

static void put_column(picture *p, const char *key, column_fn *column) {
    ebb_json_open(&p->page->json, key, '[');
    for (size_t i = 0; i < p->n_exact; i++) {
        const ebb_study_block block = ebb_study_get_block(p->page->report->study, p->exact[i].block);
        ebb__report_page_i64(p->page, NULL, column(p, i, &block));
    }
    ebb_json_close(&p->page->json, ']');
}

static ebb_status put_names(picture *p) {
    ebb_json_open(&p->page->json, "name", '[');
    for (size_t i = 0; i < p->n_exact; i++) {
        int64_t number = -1;
        const ebb_study_block block = ebb_study_get_block(p->page->report->study, p->exact[i].block);
        EBB_TRY(ebb__report_page_text(p->page, block.name, &number));
        ebb__report_page_i64(p->page, NULL, number);
    }
    ebb_json_close(&p->page->json, ']');
    ebb_json_open(&p->page->json, "stack", '[');
    for (size_t i = 0; i < p->n_exact; i++) {
        int64_t number = -1;
        const ebb_study_block block = ebb_study_get_block(p->page->report->study, p->exact[i].block);
        EBB_TRY(ebb__report_page_stack(p->page, block.stack, &number));
        ebb__report_page_i64(p->page, NULL, number);
    }
    ebb_json_close(&p->page->json, ']');
    return EBB_OK;
}

/* How many of each block, their times since its birth, and a letter each. */
static void put_accesses(picture *p) {
    static const char letters[EBB_STUDY_N_KINDS + 1] = "awrcf";
    ebb_study_access accesses[MAX_BLOCK_ACCESSES];
    ebb_json *json = &p->page->json;
    ebb_json_open(json, "n_accesses", '[');
    for (size_t i = 0; i < p->n_exact; i++) { ebb_json_u64(json, NULL, p->exact[i].n_accesses); }
    ebb_json_close(json, ']');
    ebb_json_open(json, "access_time", '[');
    for (size_t i = 0; i < p->n_exact; i++) {
        const ebb_study_block block = ebb_study_get_block(p->page->report->study, p->exact[i].block);
        const size_t n =
            ebb_study_block_accesses(p->page->report->study, p->exact[i].block, 0, p->exact[i].n_accesses, accesses);
        EBB_ASSERT(n == p->exact[i].n_accesses);
        EBB_ASSERT(n == 0 || accesses[0].time_ns >= block.born_ns);
        for (size_t a = 0; a < n; a++) { ebb_json_u64(json, NULL, accesses[a].time_ns - block.born_ns); }
    }
    ebb_json_close(json, ']');
    ebb_json_open(json, "access_kind", '[');
    for (size_t i = 0; i < p->n_exact; i++) {
        char kinds[MAX_BLOCK_ACCESSES + 1];
        const size_t n =
            ebb_study_block_accesses(p->page->report->study, p->exact[i].block, 0, p->exact[i].n_accesses, accesses);
        for (size_t a = 0; a < n; a++) { kinds[a] = letters[accesses[a].kind]; }
        kinds[n] = '\0';
        ebb_json_text(json, NULL, kinds);
    }
    ebb_json_close(json, ']');
}

static ebb_status put_exact(picture *p) {
    static const struct {
        const char *key;
        column_fn *column;
    } columns[] = {{"number", number_of}, {"born", birth_of},  {"life", life_of},   {"y", y_of},
                   {"size", size_of},     {"role", role_of},   {"reads", reads_of}, {"writes", writes_of},
                   {"idle", idle_of},     {"flags", flags_of}, {"row", row_of}};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        put_column(p, columns[i].key, columns[i].column);
    }
    EBB_TRY(put_names(p));
    put_accesses(p);
    return EBB_OK;
}

/* ---- the rest, as a grid ------------------------------------------------------------------------ */

/* Add the part of a row that a block holds, from x0 to x1 in columns. */
static void add_to_row(float *row, double x0, double x1, double share) {
    const size_t first = (size_t)x0;
    for (size_t c = first; c < GRID_COLUMNS && (double)c < x1; c++) {
        const double from = (double)c > x0 ? (double)c : x0, to = (double)c + 1.0 < x1 ? (double)c + 1.0 : x1;
        row[c] += (float)(share * (to - from));
    }
}

static void add_to_grid(picture *p, const ebb_study_block *block, uint64_t y) {
    const double column = (double)GRID_COLUMNS / (double)(p->page->end + 1), row = (double)GRID_ROWS / (double)p->top;
    const double x0 = (double)born_x(p, block) * column, x1 = ((double)died_x(p, block) + 1.0) * column;
    const double y0 = (double)y * row, y1 = (double)(y + block->size_bytes) * row;
    EBB_ASSERT(p->top > 0 && x0 >= 0.0 && x0 < x1 && y0 >= 0.0);
    float *cells = p->cells + (size_t)block->role * N_CELLS;
    for (size_t r = (size_t)y0; r < GRID_ROWS && (double)r < y1; r++) {
        const double from = (double)r > y0 ? (double)r : y0, to = (double)r + 1.0 < y1 ? (double)r + 1.0 : y1;
        add_to_row(cells + r * GRID_COLUMNS, x0, x1, to - from);
    }
}

/* A letter a cell: '.' where there is little, else four shades of each role. */
static char cell_letter(const picture *p, size_t cell) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    size_t best = 0;
    float sum = 0.0f;
    for (size_t role = 0; role < EBB_N_ROLES; role++) {
        const float share = p->cells[role * N_CELLS + cell];
        sum += share;
        if (share > p->cells[best * N_CELLS + cell]) { best = role; }
    }
    if (sum < 0.02f) { return '.'; }
    const size_t shade = sum < 0.25f ? 0 : sum < 0.5f ? 1 : sum < 0.75f ? 2 : 3;
    EBB_ASSERT(best * 4 + shade < sizeof letters - 1);
    return letters[best * 4 + shade];
}

/* Blocks left for the grid are small in area, so it touches few cells. */
static ebb_status put_grid(picture *p) {
    ebb_json *json = &p->page->json;
    if (p->n == p->n_exact) {
        ebb_json_null(json, "grid");
        return EBB_OK;
    }
    EBB_ASSERT(p->n_exact == MAX_EXACT && p->n_exact < p->n);
    p->cells = ebb__calloc(p->page->mem, N_CELLS * EBB_N_ROLES, sizeof *p->cells);
    if (p->cells == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = p->n_exact; i < p->n; i++) {
        const ebb_study_block block = ebb_study_get_block(p->page->report->study, p->order[i]);
        add_to_grid(p, &block, p->y[p->order[i]]);
    }
    ebb_json_open(json, "grid", '[');
    for (size_t r = 0; r < GRID_ROWS; r++) {
        char row[GRID_COLUMNS + 1];
        for (size_t c = 0; c < GRID_COLUMNS; c++) { row[c] = cell_letter(p, r * GRID_COLUMNS + c); }
        row[GRID_COLUMNS] = '\0';
        ebb_json_text(json, NULL, row);
    }
    ebb_json_close(json, ']');
    return EBB_OK;
}

static ebb_status put_picture(picture *p, uint64_t *key) {
    EBB_TRY(ebb__report_put_addresses(p->page, p->y, &p->top));
    EBB_TRY(order_by_area(p, key));
    EBB_TRY(choose(p));
    ebb_json_u64(&p->page->json, "top", p->top);
    ebb_json_u64(&p->page->json, "rest", p->n - p->n_exact);
    EBB_TRY(put_exact(p));
    return put_grid(p);
}

ebb_status ebb__report_put_blocks(ebb_report_page *page) {
    picture p = {.page = page, .n = (size_t)page->report->summary.n_blocks};
    uint64_t *key = ebb__alloc(page->mem, p.n + 1, sizeof *key);
    p.y = ebb__alloc(page->mem, p.n + 1, sizeof *p.y);
    p.order = ebb__alloc(page->mem, p.n + 1, sizeof *p.order);
    ebb_status status = key != NULL && p.y != NULL && p.order != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    ebb_json_open(&page->json, "blocks", '{');
    if (status == EBB_OK) { status = put_picture(&p, key); }
    ebb_json_close(&page->json, '}');
    ebb__free(page->mem, key);
    ebb__free(page->mem, p.y);
    ebb__free(page->mem, p.order);
    ebb__free(page->mem, p.exact);
    ebb__free(page->mem, p.cells);
    return status;
}
