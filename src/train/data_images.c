/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of JPEG and PNG pictures, a folder a class:
 *
 *      DIR/train/CLASS/x.jpg   DIR/test/CLASS/y.png (or DIR/val)     or     DIR/CLASS/x.jpg, every tenth for the test
 *
 * Held in memory are names only; a picture is decoded each time that a batch asks for it, straight to the
 * size that the network wants. Folders and files are taken in the order of their names' bytes, so that an image's
 * number is the same on every machine. Classes are numbered by the train folders.
 */
#include "train/data_priv.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#define PATH_BYTES 4096
#define TEST_EVERY 10

typedef EBB_VEC(const char *) name_list;

typedef struct picture {
    const char *dir; /* shared by its class */
    const char *name;
    int32_t label;
} picture;

typedef struct image_folder {
    ebb_source base;
    ebb_bump bump; /* names */
    EBB_VEC(picture) pictures;
    const char *root;
} image_folder;

/* ---- finding the pictures --------------------------------------------------------------------- */

static bool is_picture(const char *name) {
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot != NULL && i < sizeof endings / sizeof endings[0]; i++) {
        if (strcasecmp(dot, endings[i]) == 0) { return true; }
    }
    return false;
}

/* name may be NULL: dir itself. */
static ebb_status join(char path_out[PATH_BYTES], const char *dir, const char *name) {
    int n = snprintf(path_out, PATH_BYTES, "%s%s%s", dir, name != NULL ? "/" : "", name != NULL ? name : "");
    if (n >= 0 && n < PATH_BYTES) { return EBB_OK; }
    return ebb_fail(EBB_E_ARGUMENT, "%.200s: the name is too long", dir);
}

static bool is_folder(const char *dir, const char *name) {
    char path[PATH_BYTES];
    struct stat info;
    return snprintf(path, sizeof path, "%s/%s", dir, name) < PATH_BYTES && stat(path, &info) == 0 &&
           S_ISDIR(info.st_mode);
}

static int order_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names in dir, sorted: its folders, or its pictures. */
static ebb_status list(image_folder *folder, const char *dir, bool folders, name_list *names) {
    DIR *open_dir = opendir(dir);
    if (open_dir == NULL) { return ebb__fail_errno(dir, "open"); }
    ebb_status status = EBB_OK;
    for (struct dirent *entry; status == EBB_OK && (entry = readdir(open_dir)) != NULL;) {
        if (entry->d_name[0] == '.' || !(folders ? is_folder(dir, entry->d_name) : is_picture(entry->d_name))) {
            continue;
        }
        const char *name = ebb__bump_strdup(&folder->bump, entry->d_name);
        status = name == NULL ? EBB_E_NO_MEMORY : EBB_PUSH(folder->base.mem, names, name);
    }
    (void)closedir(open_dir);
    if (names->n > 1) { qsort(names->data, names->n, sizeof *names->data, order_names); }
    return status;
}

typedef enum part { ALL, ALL_BUT_TENTH, TENTH } part;

static ebb_status add_class(image_folder *folder, const char *dir, int32_t label, part which) {
    name_list names = {0};
    const ebb_mem *mem = folder->base.mem;
    const char *kept_dir = ebb__bump_strdup(&folder->bump, dir);
    ebb_status status = kept_dir == NULL ? EBB_E_NO_MEMORY : list(folder, dir, false, &names);
    for (size_t i = 0; status == EBB_OK && i < names.n; i++) {
        bool tenth = i % TEST_EVERY == TEST_EVERY - 1;
        if (which != ALL && tenth != (which == TENTH)) { continue; }
        picture p = {.dir = kept_dir, .name = names.data[i], .label = label};
        status = EBB_PUSH(mem, &folder->pictures, p);
    }
    EBB_VEC_FINI(mem, &names);
    return status;
}

/* Every folder of root that is a class. */
static ebb_status add_classes(image_folder *folder, const char *root, const name_list *classes, part which) {
    name_list found = {0};
    ebb_status status = list(folder, root, true, &found);
    for (size_t i = 0; status == EBB_OK && i < found.n; i++) {
        const char **at = bsearch(&found.data[i], classes->data, classes->n, sizeof *classes->data, order_names);
        char path[PATH_BYTES];
        status = join(path, root, found.data[i]);
        if (status == EBB_OK && at == NULL) {
            status = ebb_fail(EBB_E_FORMAT, "%s: no such class among the %zu of the train split", path, classes->n);
        }
        if (status == EBB_OK) { status = add_class(folder, path, (int32_t)(at - classes->data), which); }
    }
    EBB_VEC_FINI(folder->base.mem, &found);
    return status;
}

static ebb_status check_classes(const char *root, const name_list *classes, const ebb_data_options *options) {
    if (classes->n == 0 || classes->n > INT32_MAX) {
        return ebb_fail(EBB_E_FORMAT, "%s: no folders, one for each class, in it", root);
    }
    if (options->classes > 0 && classes->n > (size_t)options->classes) {
        return ebb_fail(EBB_E_FORMAT, "%s/%s: label %" PRId64 " is not among %" PRId64 " classes", root,
                        classes->data[options->classes], options->classes, options->classes);
    }
    return EBB_OK;
}

static ebb_status find_pictures(image_folder *folder, const char *dir, const ebb_data_options *options) {
    const bool split = is_folder(dir, "train"), train = options->split == EBB_SPLIT_TRAIN;
    const char *test = is_folder(dir, "test") ? "test" : is_folder(dir, "val") ? "val" : NULL;
    char root[PATH_BYTES];
    EBB_TRY(join(root, dir, split ? "train" : NULL));
    name_list classes = {0};
    ebb_status status = list(folder, root, true, &classes);
    if (status == EBB_OK) { status = check_classes(root, &classes, options); }
    folder->base.classes = options->classes > 0 ? options->classes : (int64_t)classes.n;
    bool none = split && !train && test == NULL;
    if (status == EBB_OK && split && !train && !none) { status = join(root, dir, test); }
    if (status == EBB_OK && !none) {
        status = add_classes(folder, root, &classes, split ? ALL : train ? ALL_BUT_TENTH : TENTH);
    }
    EBB_VEC_FINI(folder->base.mem, &classes);
    if (status == EBB_OK && train && folder->pictures.n == 0) {
        status = ebb_fail(EBB_E_FORMAT, "%s: no .jpg, .jpeg or .png in its classes' folders", root);
    }
    return status;
}

static uint64_t held_bytes(const image_folder *folder) {
    uint64_t bytes = folder->pictures.cap * sizeof *folder->pictures.data;
    for (size_t i = 0; i < folder->pictures.n; i++) { bytes += strlen(folder->pictures.data[i].name) + 1; }
    return bytes;
}

/* ---- one picture ------------------------------------------------------------------------------ */

typedef struct reading {
    const ebb_source *source;
    const ebb_sample *sample;
    void *scratch; /* of resampling */
    float *dst;
    ebb_crop crop;       /* of the whole picture, in its own pixels */
    int64_t full_height; /* 0: not known yet */
    int64_t full_width;
    int64_t top, left, height, width; /* of the crop, in pixels as they are decoded */
    ebb_resample resample;
} reading;

static int choose_reduction(void *ctx, int64_t height, int64_t width) {
    reading *r = ctx;
    r->full_height = height;
    r->full_width = width;
    r->crop = ebb__data_draw_crop(r->sample, height, width, r->source->height, r->source->width);
    int by = 8;
    while (by > 1 &&
           (r->crop.height / by < (double)r->source->height || r->crop.width / by < (double)r->source->width)) {
        by /= 2;
    }
    return by;
}

/* Round [from, from + n) to pixels of [0, limit). */
static void round_range(double from, double n, int64_t limit, int64_t *first_out, int64_t *n_out) {
    int64_t first = (int64_t)(from + 0.5), count = (int64_t)(n + 0.5);
    if (first > limit - 1) { first = limit - 1; }
    if (count < 1) { count = 1; }
    if (count > limit - first) { count = limit - first; }
    *first_out = first;
    *n_out = count;
}

static void begin_picture(void *ctx, int64_t height, int64_t width) {
    reading *r = ctx;
    if (r->full_height == 0) { (void)choose_reduction(r, height, width); }
    const double down = (double)height / (double)r->full_height, across = (double)width / (double)r->full_width;
    round_range(r->crop.top * down, r->crop.height * down, height, &r->top, &r->height);
    round_range(r->crop.left * across, r->crop.width * across, width, &r->left, &r->width);
    const ebb_resize size = {r->source->channels, r->height, r->width, r->source->height, r->source->width};
    ebb__resample_init(&r->resample, r->scratch, &size, r->crop.flip);
}

static bool take_row(void *ctx, int64_t y, const uint8_t *rgb) {
    reading *r = ctx;
    if (y < r->top) { return true; }
    const uint8_t *src = rgb + 3 * r->left;
    float *row = r->resample.row;
    for (int64_t x = 0; x < r->width; x++) {
        const float red = src[3 * x], green = src[3 * x + 1], blue = src[3 * x + 2];
        if (r->source->channels == 1) {
            row[x] = 0.299f * red + 0.587f * green + 0.114f * blue;
        } else {
            row[x] = red;
            row[r->width + x] = green;
            row[2 * r->width + x] = blue;
        }
    }
    ebb__resample_add_row(&r->resample, y - r->top, r->dst);
    return y + 1 < r->top + r->height;
}

/* The usual constants of ImageNet, for grey their means. */
static void normalise(const ebb_source *source, float *dst) {
    static const float mean[2][3] = {{0.485f, 0.456f, 0.406f}, {0.449f, 0, 0}};
    static const float deviation[2][3] = {{0.229f, 0.224f, 0.225f}, {0.226f, 1, 1}};
    const size_t grey = source->channels == 1, n = (size_t)(source->height * source->width);
    for (int64_t c = 0; c < source->channels; c++) {
        const float scale = 1.0f / (255.0f * deviation[grey][c]), offset = -mean[grey][c] / deviation[grey][c];
        float *plane = dst + (size_t)c * n;
        for (size_t i = 0; i < n; i++) { plane[i] = plane[i] * scale + offset; }
    }
}

static ebb_status read_picture(const ebb_source *source, const ebb_sample *sample, void *scratch, float *dst,
                               int32_t *label_out) {
    const image_folder *folder = (const image_folder *)source;
    const picture *p = &folder->pictures.data[sample->image];
    char path[PATH_BYTES];
    EBB_TRY(join(path, p->dir, p->name));
    reading r = {.source = source, .sample = sample, .scratch = (char *)scratch + EBB_IMAGE_SCRATCH_BYTES, .dst = dst};
    const ebb_row_sink sink = {choose_reduction, begin_picture, take_row, &r};
    memset(dst, 0, (size_t)(source->channels * source->height * source->width) * sizeof *dst);
    EBB_TRY(ebb__image_decode(path, &sink, scratch, source->allowance));
    normalise(source, dst);
    *label_out = p->label;
    return EBB_OK;
}

/* ---- the source ------------------------------------------------------------------------------- */

static void close_images(ebb_source *source) {
    image_folder *folder = (image_folder *)source;
    if (folder == NULL) { return; }
    const ebb_mem *mem = source->mem;
    EBB_VEC_FINI(mem, &folder->pictures);
    ebb__bump_fini(&folder->bump);
    ebb__free(mem, folder);
}

static ebb_status open_images(const char *dir, const ebb_data_options *options, ebb_source **source_out) {
    image_folder *folder = ebb__calloc(options->mem, 1, sizeof *folder);
    if (folder == NULL) { return EBB_E_NO_MEMORY; }
    ebb_source *base = &folder->base;
    base->ops = &ebb__source_images;
    base->mem = ebb__mem_or_default(options->mem);
    ebb__bump_init(&folder->bump, base->mem);
    base->channels = options->channels > 0 ? options->channels : 3;
    base->height = options->height > 0 ? options->height : 224;
    base->width = options->width > 0 ? options->width : 224;
    ebb_status status = EBB_OK;
    if (base->channels != 1 && base->channels != 3) {
        status = ebb_fail(EBB_E_ARGUMENT, "%s: pictures have 1 or 3 channels, not %" PRId64, dir, base->channels);
    }
    if (status == EBB_OK) { status = find_pictures(folder, dir, options); }
    if (status != EBB_OK) {
        close_images(base);
        return status;
    }
    base->n_images = folder->pictures.n;
    base->held_bytes = held_bytes(folder);
    const ebb_resize largest = {base->channels, EBB_IMAGE_MAX_SIDE, EBB_IMAGE_MAX_SIDE, base->height, base->width};
    base->scratch_bytes = EBB_IMAGE_SCRATCH_BYTES + ebb__resample_scratch_bytes(&largest);
    base->library_bytes = EBB_IMAGE_START_BYTES;
    base->decodes = true;
    *source_out = base;
    return EBB_OK;
}

const ebb_source_ops ebb__source_images = {
    .scheme = "images",
    .path = "DIR",
    .open = open_images,
    .close = close_images,
    .read = read_picture,
};
