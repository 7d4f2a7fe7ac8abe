/* SPDX-License-Identifier: Apache-2.0
 *
 * A network's values in and out of safetensors files, one after the other through the staging buffer. Names are
 * the graph's, which are PyTorch's; with weights go the counters of batch-norm that PyTorch's modules hold
 * (num_batches_tracked), so that its strict loading takes the file; they go on from those of the weights loaded.
 */
#include "train/trainer_priv.h"

#include <openssl/evp.h>

#define RUNNING_MEAN ".running_mean"
#define TRACKED ".num_batches_tracked"
#define NAME_BYTES 512

/* ---- which values ----------------------------------------------------------------------------- */

static bool is_in(const ebb_value_info *info, ebb_value_set set) {
    switch (set) {
    case EBB_VALUES_WEIGHTS: return info->kind == EBB_VALUE_PARAMETER || info->kind == EBB_VALUE_BUFFER;
    case EBB_VALUES_ALL: return ebb__value_is_persistent(info->kind);
    case EBB_VALUES_GRADIENTS: return info->kind == EBB_VALUE_GRADIENT && info->kept && info->of != EBB_NO_VALUE;
    }
    return false;
}

/* A gradient goes by its parameter's name. */
static const char *name_of(const ebb_graph *graph, const ebb_value_info *info) {
    return info->kind == EBB_VALUE_GRADIENT ? graph->values.data[info->of].name : info->name;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* The counter beside a batch-norm's running mean; false: info is not such a mean. */
static bool tracked_name(const ebb_value_info *info, ebb_value_set set, char name_out[NAME_BYTES]) {
    if (set != EBB_VALUES_WEIGHTS || info->kind != EBB_VALUE_BUFFER || !ends_with(info->name, RUNNING_MEAN)) {
        return false;
    }
    int n = (int)(strlen(info->name) - strlen(RUNNING_MEAN));
    return snprintf(name_out, NAME_BYTES, "%.*s%s", n, info->name, TRACKED) < NAME_BYTES;
}

/* ---- writing ---------------------------------------------------------------------------------- */

static ebb_status declare(const ebb_graph *graph, ebb_value_set set, ebb_st_writer *writer) {
    char name[NAME_BYTES];
    for (size_t v = 0; v < graph->values.n; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        if (!is_in(info, set)) { continue; }
        EBB_TRY(ebb__st_writer_add(writer, name_of(graph, info), EBB_ST_F32, (uint32_t)info->shape.n_dims,
                                   info->shape.dims));
        if (tracked_name(info, set, name)) { EBB_TRY(ebb__st_writer_add(writer, name, EBB_ST_I64, 0, NULL)); }
    }
    return EBB_OK;
}

ebb_status ebb__trainer_write_values(ebb_trainer *trainer, ebb_value_set set, ebb_st_writer *writer) {
    const ebb_graph *graph = trainer->session->graph;
    const int64_t n_tracked = (int64_t)(trainer->tracked_before + trainer->step);
    char name[NAME_BYTES];
    EBB_TRY(declare(graph, set, writer));
    EBB_TRY(ebb__st_writer_begin(writer));
    for (size_t v = 0; v < graph->values.n; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        if (!is_in(info, set)) { continue; }
        const size_t n = (size_t)ebb__shape_elements(&info->shape);
        EBB_ASSERT(n <= trainer->staging_elements);
        EBB_TRY(ebb_run_get_value(trainer->run, (ebb_value)v, trainer->staging));
        EBB_TRY(ebb__st_writer_append(writer, trainer->staging, n * sizeof(float)));
        if (tracked_name(info, set, name)) { EBB_TRY(ebb__st_writer_append(writer, &n_tracked, sizeof n_tracked)); }
    }
    return EBB_OK;
}

static ebb_status save(ebb_trainer *trainer, ebb_value_set set, const char *path) {
    ebb_st_writer *writer = NULL;
    EBB_TRY(ebb__st_writer_create(trainer->mem, path, &writer));
    ebb_status status = ebb__st_writer_set(writer, "format", "pt"); /* PyTorch's tools look for it */
    if (status == EBB_OK) { status = ebb__trainer_write_values(trainer, set, writer); }
    if (status == EBB_OK) { return ebb__st_writer_commit(writer); }
    ebb__st_writer_abandon(writer);
    return status;
}

ebb_status ebb__trainer_refuse_values(const ebb_trainer *trainer, const char *path, const char *not_finite) {
    if (not_finite == NULL) { return EBB_OK; }
    return ebb_fail(EBB_E_NOT_FINITE, "%s: not written: after step %llu '%s' is not finite", path,
                    (unsigned long long)trainer->step, not_finite);
}

ebb_status ebb_trainer_save(ebb_trainer *trainer, const char *path) {
    EBB_NEED(trainer);
    EBB_NEED(path);
    if (!trainer->options.keep_going) {
        char hash[65]; /* not needed, but its making looks at every value */
        const char *not_finite = NULL;
        EBB_TRY(ebb__trainer_hash(trainer, EBB_VALUES_WEIGHTS, hash, &not_finite));
        EBB_TRY(ebb__trainer_refuse_values(trainer, path, not_finite));
    }
    return save(trainer, EBB_VALUES_WEIGHTS, path);
}

ebb_status ebb_trainer_save_gradients(ebb_trainer *trainer, const char *path) {
    EBB_NEED(trainer);
    EBB_NEED(path);
    if (!trainer->session->options.keep_gradients) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: gradients are not kept in this run", path);
    }
    return save(trainer, EBB_VALUES_GRADIENTS, path);
}

/* ---- reading ---------------------------------------------------------------------------------- */

static void shape_text(uint32_t n_dims, const int64_t *dims, char *buf, size_t buf_bytes) {
    size_t at = 0;
    buf[0] = '\0';
    for (uint32_t d = 0; d < n_dims && at < buf_bytes; d++) {
        at += (size_t)snprintf(buf + at, buf_bytes - at, "%s%lld", d > 0 ? ", " : "", (long long)dims[d]);
    }
}

static ebb_status check_shape(const ebb_safetensors *file, const ebb_st_tensor *tensor, const ebb_value_info *info) {
    bool same = tensor->n_dims == (uint32_t)info->shape.n_dims;
    for (uint32_t d = 0; same && d < tensor->n_dims; d++) { same = tensor->dims[d] == info->shape.dims[d]; }
    if (same) { return EBB_OK; }
    char has[200], wants[100];
    shape_text(tensor->n_dims, tensor->dims, has, sizeof has);
    shape_text((uint32_t)info->shape.n_dims, info->shape.dims, wants, sizeof wants);
    return ebb_fail(EBB_E_FORMAT, "%s: tensor '%s' is of dims (%s), the network's of (%s)", file->path, tensor->name,
                    has, wants);
}

/* Every value is there and fits, before any is set. */
static ebb_status check_values(const ebb_graph *graph, ebb_value_set set, const ebb_safetensors *file,
                               size_t *n_used_out) {
    size_t n_used = 0, n_missing = 0;
    const char *missing = NULL;
    for (size_t v = 0; v < graph->values.n; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        if (!is_in(info, set)) { continue; }
        const ebb_st_tensor *tensor = ebb__safetensors_find(file, info->name);
        if (tensor == NULL) {
            if (n_missing++ == 0) { missing = info->name; }
            continue;
        }
        EBB_TRY(check_shape(file, tensor, info));
        n_used++;
    }
    if (n_missing > 0) {
        return ebb_fail(EBB_E_FORMAT, "%s: %zu of the network's tensors are missing, '%s' is the first", file->path,
                        n_missing, missing);
    }
    *n_used_out = n_used;
    return EBB_OK;
}

static bool is_used(const ebb_graph *graph, ebb_value_set set, const char *name) {
    for (size_t v = 0; v < graph->values.n; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        if (is_in(info, set) && strcmp(info->name, name) == 0) { return true; }
    }
    return false;
}

static void warn_extra(const ebb_graph *graph, ebb_value_set set, const ebb_safetensors *file, size_t n_used) {
    size_t n_extra = file->tensors.n - n_used;
    const char *first = NULL;
    for (size_t i = 0; i < file->tensors.n; i++) { n_extra -= ends_with(file->tensors.data[i].name, TRACKED); }
    if (n_extra == 0) { return; }
    for (size_t i = 0; first == NULL && i < file->tensors.n; i++) {
        const char *name = file->tensors.data[i].name;
        if (!ends_with(name, TRACKED) && !is_used(graph, set, name)) { first = name; }
    }
    ebb__log(EBB_LOG_WARN, "%s: %zu tensors are not the network's and are left out, '%s' is the first", file->path,
             n_extra, first != NULL ? first : "");
}

ebb_status ebb__trainer_read_values(ebb_trainer *trainer, ebb_value_set set, const ebb_safetensors *file) {
    const ebb_graph *graph = trainer->session->graph;
    size_t n_used = 0;
    EBB_TRY(check_values(graph, set, file, &n_used));
    for (size_t v = 0; v < graph->values.n; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        if (!is_in(info, set)) { continue; }
        const ebb_st_tensor *tensor = ebb__safetensors_find(file, info->name);
        EBB_TRY(ebb__safetensors_read_f32(file, tensor, 0, tensor->n_elements, trainer->staging));
        EBB_TRY(ebb_run_set_value(trainer->run, (ebb_value)v, trainer->staging));
    }
    warn_extra(graph, set, file, n_used);
    return EBB_OK;
}

/* All counters of a file are the same, so one is enough; 0 without any. */
static ebb_status read_tracked(const ebb_safetensors *file, uint64_t *n_out) {
    int32_t n = 0;
    for (size_t i = 0; i < file->tensors.n; i++) {
        const ebb_st_tensor *tensor = &file->tensors.data[i];
        if (!ends_with(tensor->name, TRACKED) || tensor->n_elements != 1) { continue; }
        EBB_TRY(ebb__safetensors_read_s32(file, tensor, 0, 1, &n));
        break;
    }
    *n_out = n > 0 ? (uint64_t)n : 0;
    return EBB_OK;
}

ebb_status ebb__trainer_load(ebb_trainer *trainer, const char *path) {
    ebb_safetensors *file = NULL;
    EBB_TRY(ebb__safetensors_open(trainer->mem, path, &file));
    ebb_status status = ebb__trainer_read_values(trainer, EBB_VALUES_WEIGHTS, file);
    if (status == EBB_OK) { status = read_tracked(file, &trainer->tracked_before); }
    ebb__safetensors_close(file);
    return status;
}

/* ---- the hash --------------------------------------------------------------------------------- */

static bool are_finite(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) { return false; }
    }
    return true;
}

static ebb_status hash_values(ebb_trainer *trainer, ebb_value_set set, EVP_MD_CTX *md, unsigned char digest_out[32],
                              const char **not_finite_out) {
    const ebb_graph *graph = trainer->session->graph;
    bool fine = EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1;
    for (size_t v = 0; fine && v < graph->values.n; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        if (!is_in(info, set)) { continue; }
        EBB_TRY(ebb_run_get_value(trainer->run, (ebb_value)v, trainer->staging));
        const size_t n = (size_t)ebb__shape_elements(&info->shape);
        fine = EVP_DigestUpdate(md, trainer->staging, n * sizeof(float)) == 1;
        if (*not_finite_out == NULL && !are_finite(trainer->staging, n)) { *not_finite_out = info->name; }
    }
    if (!fine || EVP_DigestFinal_ex(md, digest_out, NULL) != 1) {
        return ebb_fail(EBB_E_INTERNAL, "sha256: libcrypto refuses");
    }
    return EBB_OK;
}

ebb_status ebb__trainer_hash(ebb_trainer *trainer, ebb_value_set set, char hex_out[65], const char **not_finite_out) {
    unsigned char digest[32];
    const char *not_finite = NULL;
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    if (md == NULL) { return ebb_fail(EBB_E_NO_MEMORY, "out of host memory: sha256"); }
    ebb_status status = hash_values(trainer, set, md, digest, &not_finite);
    EVP_MD_CTX_free(md);
    EBB_TRY(status);
    if (not_finite_out != NULL) { *not_finite_out = not_finite; }
    for (size_t i = 0; i < sizeof digest; i++) { (void)snprintf(hex_out + 2 * i, 3, "%02x", digest[i]); }
    return EBB_OK;
}
