/* A vendor's library for parts that negate a tensor of float32. The saved part is the text "neg". */
#include <stdio.h>
#include <string.h>

#include "keel_part.h"

static int load(void *context, const void *bytes, size_t count, void **part, char *text, size_t size)
{
    (void)context;
    *part = NULL;
    if (count == 3 && memcmp(bytes, "neg", 3) == 0)
        return 0;
    snprintf(text, size, "It is not a part of this vendor.");
    return 1;
}

static int run(void *context, void *part, const DLTensor *inputs, size_t input_count, const DLTensor *outputs,
               size_t output_count, void *stream, char *text, size_t size)
{
    int64_t count = 1;
    (void)context, (void)part, (void)stream, (void)input_count, (void)output_count;
    for (int d = 0; d < inputs[0].ndim; d++)
        count *= inputs[0].shape[d];
    for (int64_t k = 0; k < count; k++) {
        float x = ((const float *)inputs[0].data)[k];
        if (x > 1e6f) {
            snprintf(text, size, "The element %lld is too large.", (long long)k);
            return 1;
        }
        ((float *)outputs[0].data)[k] = -x;
    }
    return 0;
}

static void unload(void *context, void *part) { (void)context, (void)part; }

const keel_part_library_v1 *keel_part_library(uint32_t version)
{
    static const keel_part_library_v1 library = {KEEL_PART_VERSION, "vendor", NULL, load, run, unload};
    return version == KEEL_PART_VERSION ? &library : NULL;
}
