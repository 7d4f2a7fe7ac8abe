/* SPDX-License-Identifier: Apache-2.0
 *
 * The pieces of a snapshot (report_viz.h), as opcodes: lists in parts of a thousand, each distinct text, frame and
 * stack written once.
 */
#include "report/report_viz.h"

#define BATCH 1000u
#define MAX_FRAMES 1000u

static const char *const words[] = {
#define WORD_TEXT(code, text) text,
    VIZ_WORDS(WORD_TEXT)
#undef WORD_TEXT
};

void ebb__report_viz_word(viz *v, viz_word w) {
    ebb__report_pickle_again(&v->pickle, words[w], &v->word_of[w]);
}

void ebb__report_viz_number(viz *v, viz_word key, uint64_t x) {
    ebb__report_viz_word(v, key);
    ebb__report_pickle_u64(&v->pickle, x);
}

void ebb__report_viz_pair(viz *v, viz_word key, viz_word value) {
    ebb__report_viz_word(v, key);
    ebb__report_viz_word(v, value);
}

void ebb__report_viz_open_list(viz *v) {
    ebb__report_pickle_op(&v->pickle, ']');
    (void)ebb__report_pickle_memoize(&v->pickle);
    v->n_in_batch = 0;
}

void ebb__report_viz_next(viz *v) {
    if (v->n_in_batch == BATCH) {
        ebb__report_pickle_op(&v->pickle, 'e');
        v->n_in_batch = 0;
    }
    if (v->n_in_batch++ == 0) { ebb__report_pickle_op(&v->pickle, '('); }
}

void ebb__report_viz_close_list(viz *v) {
    EBB_ASSERT(v->n_in_batch <= BATCH);
    if (v->n_in_batch > 0) { ebb__report_pickle_op(&v->pickle, 'e'); }
}

void ebb__report_viz_open_dict(viz *v) {
    ebb__report_pickle_op(&v->pickle, '}');
    (void)ebb__report_pickle_memoize(&v->pickle);
    ebb__report_pickle_op(&v->pickle, '(');
}

void ebb__report_viz_close_dict(viz *v) {
    ebb__report_pickle_op(&v->pickle, 'u');
}

/* ---- stacks ----------------------------------------------------------------------------------- */

/* Where the memo entry of number is kept, 0 the first time. */
#define ENTRY_OF(v, vec, number, entry_out)                                                                            \
    entry_of((v)->mem, (void **)&(vec)->data, &(vec)->n, &(vec)->cap, number, entry_out)

static ebb_status entry_of(const ebb_mem *mem, void **data, size_t *n, size_t *cap, uint32_t number,
                           uint32_t **entry_out) {
    if (number >= *n) {
        const size_t n_more = (size_t)number + 1 - *n;
        EBB_TRY(ebb__grow(mem, data, cap, *n, n_more, sizeof(uint32_t)));
        memset((uint32_t *)*data + *n, 0, n_more * sizeof(uint32_t));
        *n += n_more;
    }
    EBB_ASSERT(number < *n && *n <= *cap);
    *entry_out = (uint32_t *)*data + number;
    return EBB_OK;
}

ebb_status ebb__report_viz_string(viz *v, uint32_t string) {
    uint32_t *entry = NULL;
    EBB_TRY(ENTRY_OF(v, &v->string_of, string, &entry));
    ebb__report_pickle_again(&v->pickle, ebb_trace_reader_string(v->reader, string), entry);
    return EBB_OK;
}

static ebb_status put_frame(viz *v, uint32_t stack, const ebb_trace_frame *frame) {
    uint32_t *entry = NULL;
    EBB_TRY(ENTRY_OF(v, &v->frame_of, stack, &entry));
    if (*entry != 0) {
        ebb__report_pickle_get(&v->pickle, *entry);
        return EBB_OK;
    }
    ebb__report_pickle_op(&v->pickle, '}');
    *entry = ebb__report_pickle_memoize(&v->pickle);
    ebb__report_pickle_op(&v->pickle, '(');
    ebb__report_viz_word(v, WORD_NAME);
    EBB_TRY(ebb__report_viz_string(v, frame->function));
    ebb__report_viz_word(v, WORD_FILENAME);
    EBB_TRY(ebb__report_viz_string(v, frame->file));
    ebb__report_viz_number(v, WORD_LINE, frame->line);
    ebb__report_viz_close_dict(v);
    return EBB_OK;
}

ebb_status ebb__report_viz_frames(viz *v, uint32_t stack) {
    uint32_t *entry = NULL;
    ebb__report_viz_word(v, WORD_FRAMES);
    EBB_TRY(ENTRY_OF(v, &v->list_of, stack, &entry));
    if (*entry != 0) {
        ebb__report_pickle_get(&v->pickle, *entry);
        return EBB_OK;
    }
    ebb__report_pickle_op(&v->pickle, ']');
    *entry = ebb__report_pickle_memoize(&v->pickle);
    if (stack == 0) { return EBB_OK; }
    ebb__report_pickle_op(&v->pickle, '(');
    for (size_t i = 0; stack != 0 && i < MAX_FRAMES; i++) {
        const ebb_trace_frame frame = ebb_trace_reader_frame(v->reader, stack);
        EBB_TRY(put_frame(v, stack, &frame));
        stack = frame.caller;
    }
    ebb__report_pickle_op(&v->pickle, 'e');
    return EBB_OK;
}
