/* SPDX-License-Identifier: Apache-2.0
 *
 * Images and labels from a safetensors file, as they are: nothing is normalised, drawn or shuffled, so that
 * another framework can be given the very same batches. "images" (N, C, H, W) and "labels" (N) are the train
 * split, "test_images" and "test_labels" the test split where they are there.
 */
#include "train/data_priv.h"
#include "train/safetensors.h"

#include <inttypes.h>

static ebb_status find_pair(const ebb_safetensors *file, ebb_split split, const ebb_st_tensor **images_out,
                            const ebb_st_tensor **labels_out) {
    const bool train = split == EBB_SPLIT_TRAIN;
    const char *names[2] = {train ? "images" : "test_images", train ? "labels" : "test_labels"};
    const ebb_st_tensor *images = ebb__safetensors_find(file, names[0]);
    const ebb_st_tensor *labels = ebb__safetensors_find(file, names[1]);
    *images_out = images;
    *labels_out = labels;
    if (!train && images == NULL && labels == NULL) { return EBB_OK; }
    if (images == NULL || labels == NULL) {
        return ebb_fail(EBB_E_FORMAT, "%s: no tensor '%s'", file->path, images == NULL ? names[0] : names[1]);
    }
    if (images->n_dims != 4 || images->type != EBB_ST_F32 || images->n_elements == 0) {
        return ebb_fail(EBB_E_FORMAT, "%s: tensor '%s' is not F32 of dims (N, C, H, W)", file->path, names[0]);
    }
    if (labels->n_dims != 1 || labels->dims[0] != images->dims[0]) {
        return ebb_fail(EBB_E_FORMAT, "%s: tensor '%s' is not of dims (%" PRId64 ")", file->path, names[1],
                        images->dims[0]);
    }
    return EBB_OK;
}

static ebb_status read_split(const ebb_safetensors *file, const ebb_data_options *options, ebb_memory_source *source) {
    const ebb_st_tensor *images = NULL, *labels = NULL;
    EBB_TRY(find_pair(file, options->split, &images, &labels));
    source->base.ordered = true;
    source->channels = source->height = source->width = 1;
    if (images != NULL) {
        source->channels = images->dims[1];
        source->height = images->dims[2];
        source->width = images->dims[3];
        source->values = ebb__alloc(source->base.mem, (size_t)images->n_elements, sizeof *source->values);
        source->labels = ebb__alloc(source->base.mem, (size_t)labels->n_elements, sizeof *source->labels);
        if (source->values == NULL || source->labels == NULL) { return EBB_E_NO_MEMORY; }
        EBB_TRY(ebb__safetensors_read_f32(file, images, 0, images->n_elements, source->values));
        EBB_TRY(ebb__safetensors_read_s32(file, labels, 0, labels->n_elements, source->labels));
        source->base.n_images = (uint64_t)images->dims[0];
    }
    return ebb__memory_source_finish(source, options, 0, file->path);
}

static ebb_status open_tensors(const char *path, const ebb_data_options *options, ebb_source **source_out) {
    ebb_memory_source *source = NULL;
    ebb_safetensors *file = NULL;
    EBB_TRY(ebb__safetensors_open(options->mem, path, &file));
    ebb_status status = ebb__memory_source_create(&ebb__source_tensors, options->mem, &source);
    if (status == EBB_OK) { status = read_split(file, options, source); }
    ebb__safetensors_close(file);
    if (status != EBB_OK) {
        if (source != NULL) { ebb__memory_source_close(&source->base); }
        return status;
    }
    *source_out = &source->base;
    return EBB_OK;
}

const ebb_source_ops ebb__source_tensors = {
    .scheme = "tensors",
    .path = "FILE",
    .open = open_tensors,
    .close = ebb__memory_source_close,
    .read = ebb__memory_source_read,
};
