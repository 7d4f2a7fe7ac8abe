/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the stored inputs of fuzz_image: a small picture of every form that the decoder knows.
 *
 *      cmake --build build/test --target make_images && build/test/make_images tests/fuzz/corpus/image
 */
#include "data_files.h"

static data_dir dir;

static data_picture small(void) {
    return (data_picture){.height = 17, .width = 21, .rgb = {200, 100, 40}};
}

static void make_jpegs(void **state) {
    (void)state;
    static const J_COLOR_SPACE spaces[] = {JCS_UNKNOWN, JCS_GRAYSCALE, JCS_CMYK};
    char name[32];
    for (int i = 0; i < 3; i++) {
        for (int in_passes = 0; in_passes < 2; in_passes++) {
            data_picture p = small();
            p.space = spaces[i];
            p.in_passes = in_passes == 1;
            (void)snprintf(name, sizeof name, "%s-%d.jpg", in_passes == 1 ? "progressive" : "baseline", i);
            data_put_jpeg(&dir, name, p);
        }
    }
    data_picture p = small();
    p.one_scan_each = true;
    p.sampling = 1;
    data_put_jpeg(&dir, "scans.jpg", p);
    p = small();
    p.restart = 1;
    data_put_jpeg(&dir, "restart.jpg", p);
}

static void make_pngs(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int type, depth;
    } forms[] = {
        {"grey", PNG_COLOR_TYPE_GRAY, 8},
        {"grey16", PNG_COLOR_TYPE_GRAY, 16},
        {"grey1", PNG_COLOR_TYPE_GRAY, 1},
        {"grey-alpha", PNG_COLOR_TYPE_GRAY_ALPHA, 8},
        {"rgb", PNG_COLOR_TYPE_RGB, 8},
        {"rgb16", PNG_COLOR_TYPE_RGB, 16},
        {"rgb-alpha16", PNG_COLOR_TYPE_RGB_ALPHA, 16},
        {"palette", PNG_COLOR_TYPE_PALETTE, 8},
        {"palette1", PNG_COLOR_TYPE_PALETTE, 1},
    };
    char name[32];
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        data_picture p = small();
        p.png_type = forms[i].type;
        p.depth = forms[i].depth;
        p.in_passes = i % 2 == 1;
        p.text = i % 3 == 0 ? "a few words" : NULL;
        if (p.png_type == PNG_COLOR_TYPE_PALETTE) { memset(p.rgb, 1, sizeof p.rgb); }
        (void)snprintf(name, sizeof name, "%s.png", forms[i].name);
        data_put_png(&dir, name, p);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest steps[] = {cmocka_unit_test(make_jpegs), cmocka_unit_test(make_pngs)};
    if (argc != 2 || strlen(argv[1]) >= sizeof dir.path) {
        fprintf(stderr, "usage: make_images FOLDER\n");
        return 2;
    }
    strcpy(dir.path, argv[1]);
    (void)mkdir(dir.path, 0777);
    return cmocka_run_group_tests(steps, NULL, NULL);
}
