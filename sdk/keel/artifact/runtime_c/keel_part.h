/* How the runtime runs a part that a vendor's compiler made: a graph-level backend of Keel saves the part as bytes
   (Backend.serialize), and a library with this interface loads and runs it. A vendor writes this library once. */

#ifndef KEEL_PART_H
#define KEEL_PART_H

#include <stddef.h>
#include <stdint.h>

#include "keel_dlpack.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_PART_VERSION 1

/* Functions return 0, or another number after they have written a sentence to `text`, which has `size` bytes. They may
   be called from several threads at once and must not throw. */
typedef struct {
    uint32_t version;    /* KEEL_PART_VERSION */
    const char *backend; /* the name of the backend whose parts it runs */
    void *context;       /* passed to all functions */

    /* Loads a part from what the backend's `serialize` returned. The bytes stay as they are while the part exists. */
    int (*load)(void *context, const void *bytes, size_t count, void **part, char *text, size_t size);

    /* Runs a part. The outputs have memory, in the sizes and strides of their types, which is to be filled. A number is
       a tensor without dimensions. `stream` is that of the call. */
    int (*run)(void *context, void *part, const DLTensor *inputs, size_t input_count, const DLTensor *outputs,
               size_t output_count, void *stream, char *text, size_t size);

    /* Frees a part. */
    void (*unload)(void *context, void *part);
} keel_part_library_v1;

/* What a shared library defines that is passed as a file: it returns its interface, or NULL if it does not have this
   version. */
const keel_part_library_v1 *keel_part_library(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif
