/* Runs packages of Keel without Python.

   Every function may be called from several threads at once, also with the same model; only keel_free must be the last
   call with its model. No function throws or ends the process. A function that can fail returns KEEL_OK or another
   status, and says in the keel_error of the call, if that is not NULL, what went wrong. There is no global state. */

#ifndef KEEL_RUNTIME_H
#define KEEL_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#include "keel_dlpack.h"
#include "keel_part.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_RUNTIME_VERSION 1

typedef enum {
    KEEL_OK = 0,
    KEEL_BAD_PACKAGE = 1, /* the file is damaged, incomplete, or of another version */
    KEEL_NOT_HERE = 2,    /* the package is fine, but this machine lacks what it needs */
    KEEL_BAD_INPUT = 3,   /* the arguments do not fit the model */
    KEEL_BAD_INDEX = 4,   /* a kernel got an index out of range, as the values of the inputs say */
    KEEL_FAILED = 5       /* anything else: memory, a library, an assertion of the model */
} keel_status;

typedef struct {
    keel_status status;
    char text[2048]; /* one or more sentences, which end in a zero */
} keel_error;

typedef struct keel_model keel_model;

/* What loading a package may be given. keel_options_init sets the defaults, which are described here. */
typedef struct {
    size_t size; /* of this struct, which tells its version */

    /* Where libtorch_cpu.so is: the file, or its folder. NULL: $KEEL_LIBTORCH, or else where the dynamic loader finds
       it. It is opened only if the package calls operators of PyTorch. */
    const char *libtorch;

    /* The name of the variant to use. NULL: the first one that this machine can run. */
    const char *variant;

    /* The features of the CPU, as /proc/cpuinfo names them, to assume instead of asking the CPU. NULL: ask it. */
    const char *const *cpu_features;
    size_t cpu_feature_count;

    /* Nonzero: the checksums of weights are verified, which reads all of them. Everything else is always verified. The
       default is 1. */
    int check_weights;

    /* The number of threads of a call's kernels and library calls. 0: what OpenMP would use. */
    int threads;

    /* The vendors' libraries that run graph-level parts, and shared libraries that define keel_part_library. */
    const keel_part_library_v1 *const *part_libraries;
    size_t part_library_count;
    const char *const *part_files;
    size_t part_file_count;
} keel_options;

/* Sets the defaults. Pass sizeof(keel_options). */
void keel_options_init(keel_options *options, size_t size);

/* Loads a package. Its file is mapped to memory and must not change as long as the model exists. */
keel_status keel_load(const char *path, const keel_options *options, keel_model **model, keel_error *error);

/* Frees a model. Results that are alive stay valid, but for those that are views of weights. NULL is ignored. */
void keel_free(keel_model *model);

/* The name of the variant that was chosen. */
const char *keel_variant(const keel_model *model);

/* What a model takes or returns. The texts and arrays live as long as the model. */
typedef struct {
    const char *name;
    DLDataType dtype;
    int is_number;        /* 1 for a number, which is passed as a tensor without dimensions: int64, float64 or bool */
    int is_none;          /* 1 for a result that is always None: NULL is returned for it */
    int32_t ndim;         /* -1 for a result, whose dimensions only a call tells */
    const int64_t *shape; /* of an input: its sizes, -1 for those that may vary */
} keel_value_info;

/* Arguments with a value for which the model was exported (flags, None) are not inputs. */
size_t keel_input_count(const keel_model *model);
size_t keel_output_count(const keel_model *model);
keel_status keel_input_info(const keel_model *model, size_t index, keel_value_info *info);
keel_status keel_output_info(const keel_model *model, size_t index, keel_value_info *info);

/* Runs the model. The inputs are borrowed: their deleters are not called. They have the sizes that the model was
   exported for; those with other strides are copied. Inputs that the model writes to are written.

   Each output is a new tensor (or NULL for None), which the caller frees by its deleter. An output that is a view of an
   input, or an input itself, lies in that input's memory, which must outlive it. A call that fails has no outputs. */
keel_status keel_run(keel_model *model, const DLManagedTensor *const *inputs, size_t input_count,
                     DLManagedTensor **outputs, size_t output_count, keel_error *error);

/* The same on a stream of the device, a CUstream; NULL is the default stream. Results are complete when the work of
   the stream is. Inputs and outputs of packages for CUDA are on the first device. Packages for the host ignore the stream. */
keel_status keel_run_on(keel_model *model, void *stream, const DLManagedTensor *const *inputs, size_t input_count,
                        DLManagedTensor **outputs, size_t output_count, keel_error *error);

/* The number of threads of calls that begin from now on; 0 for what OpenMP would use. */
keel_status keel_set_threads(keel_model *model, int threads, keel_error *error);

/* The weights of the model, by number. Their names are those in the model. */
size_t keel_weight_count(const keel_model *model);
const char *keel_weight_name(const keel_model *model, size_t index);

/* Replaces a weight by a copy of a tensor of the same dtype and sizes. Waits for calls under way; calls that begin
   later use it. What was computed from the old value, such as a packed weight, is computed again. */
keel_status keel_replace_weight(keel_model *model, const char *name, const DLManagedTensor *value, keel_error *error);

/* The bytes of memory that the model holds between calls: arenas, packed weights, and blocks that are used again. */
size_t keel_held_bytes(const keel_model *model);

#ifdef __cplusplus
}
#endif

#endif
