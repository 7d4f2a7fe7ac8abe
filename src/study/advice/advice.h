/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files that give advice share.
 */
#ifndef EBB_SRC_STUDY_ADVICE_H
#define EBB_SRC_STUDY_ADVICE_H

#include "study/study_priv.h"

#define ADVICE_BYTES_CHARS 24

/* Whether this many bytes of this many are worth a sentence. */
bool ebb__study_is_worth(uint64_t won_bytes, uint64_t of_bytes);

/* Who it is about, in the study's bump. */
typedef struct advice_names {
    const char *first; /* "a, b, c and 4 more" of the greatest; "" where they have no labels */
    const char *const *all;
    size_t n;
} advice_names;
ebb_status ebb__study_name_holders(ebb_study *s, const study_holders *holders, advice_names *names_out);

/* sentence is of the study's bump; NULL, as its printf gives it: no memory. names may be NULL. */
ebb_status ebb__study_add_tip(ebb_study *s, const char *key, uint64_t won_bytes, const char *sentence,
                              const advice_names *names);

/* advice_leak.c: memory that grows; leaks[blocks.n], all false before, which blocks make it grow. */
ebb_status ebb__study_advise_leak(ebb_study *s, bool *leaks);

/* advice_torch.c, advice_checkpoint.c: what a program of PyTorch's could set or change. */
ebb_status ebb__study_advise_torch(ebb_study *s, const bool *leaks);
ebb_status ebb__study_advise_checkpoint(ebb_study *s, const uint8_t *purpose);

/* What a program of PyTorch's has a block for, as far as it can be told. */
typedef enum advice_purpose {
    PURPOSE_UNKNOWN,
    PURPOSE_ACTIVATION,
    PURPOSE_STATE,     /* of the optimizer */
    PURPOSE_STEP_TEMP, /* of its step */
    PURPOSE_LEAK,      /* it should not be there */
} advice_purpose;

/* What a frame says of the blocks that are allocated below it. */
typedef enum advice_frame { FRAME_ANY, FRAME_FORWARD, FRAME_BACKWARD, FRAME_OPTIMIZER } advice_frame;
advice_frame ebb__study_frame_of(const ebb_study *s, uint32_t stack);

/* The step that touches it first. */
uint32_t ebb__study_birth_phase(const ebb_study *s, size_t block);

/* The peak, if each block had this many quarters of its bytes; quarters[blocks.n], 0 to 4. */
uint64_t ebb__study_peak_with(const ebb_study *s, const uint8_t *quarters);

/* From this event on, before what happens at it, there are this many bytes more, or fewer. */
typedef struct advice_change {
    uint64_t event, bytes;
    bool goes;
} advice_change;
typedef EBB_VEC(advice_change) advice_changes;

/* The peak with these changes, which it sorts; what goes has been there. */
ebb_status ebb__study_peak_changed(const ebb_study *s, advice_changes *changes, uint64_t *peak_bytes_out);

#endif
