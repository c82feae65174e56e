/* Launches of a kernel's compiled functions by the CUDA driver: the entry of keel.launcher's launchers.

The structures are those of native_launch.py, which also defines MOST, the parameters of a function that there is room
for, and INVALID_CONTEXT, an error of the driver. Variants are made by Python and never change once they are listed, so
that a list can be walked while Python puts another variant at its front. */

#include <stdint.h>

#define ELSEWHERE -1

typedef int (*LaunchKernel)(uint64_t function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned shared, uint64_t stream, void **parameters, void **extra);
typedef int (*CurrentDevice)(int *device);

/* One launch: which addresses it takes, then the values of its int parameters, then pointers to scratch memory, which
   are null. */
struct run {
    uint64_t function, programs, threads, shared;
    uint64_t pointers, numbers, parameters;
    const uint64_t *which, *values;
};

/* What is launched on a device for these sizes, with addresses that are all multiples of 16 or not. */
struct variant {
    const struct variant *next;
    int64_t device;
    uint64_t aligned, runs;
    const uint64_t *sizes;
    const struct run *run;
};

struct kernel {
    LaunchKernel launch;
    CurrentDevice current;
    uint64_t buffers, symbols;
    const struct variant *first;
};

static int fits(const struct variant *v, const struct kernel *k, const uint64_t *arguments, int64_t device, int aligned)
{
    if (v->device != device || v->aligned != (uint64_t)aligned)
        return 0;
    for (uint64_t i = 0; i < k->symbols; i++)
        if (v->sizes[i] != arguments[k->buffers + i])
            return 0;
    return 1;
}

static int run(const struct kernel *k, const struct run *r, const uint64_t *arguments, uint64_t stream)
{
    uint64_t values[MOST];
    void *places[MOST];
    for (uint64_t i = 0; i < r->parameters; i++) {
        values[i] = i < r->pointers ? arguments[r->which[i]] : i < r->pointers + r->numbers ? r->values[i - r->pointers] : 0;
        places[i] = &values[i];
    }
    return k->launch(r->function, (unsigned)r->programs, 1, 1, (unsigned)r->threads, 1, 1, (unsigned)r->shared, stream,
                     places, 0);
}

/* Launches the kernel, or leaves it to Python: for another device than the current one, in a thread without a context,
   or for arguments without a variant. */
int keel_triton_launch(void *state, uint64_t *arguments, int64_t device, uint64_t stream)
{
    const struct kernel *k = state;
    uint64_t bits = 0;
    int current, code;
    if (k->current(&current) != 0 || current != device)
        return ELSEWHERE;
    for (uint64_t i = 0; i < k->buffers; i++)
        bits |= arguments[i];
    const struct variant *v = __atomic_load_n(&k->first, __ATOMIC_ACQUIRE);
    while (v != 0 && !fits(v, k, arguments, device, (bits & 15) == 0))
        v = v->next;
    if (v == 0)
        return ELSEWHERE;
    for (uint64_t i = 0; i < v->runs; i++)
        if ((code = run(k, &v->run[i], arguments, stream)) != 0)
            return code == INVALID_CONTEXT && i == 0 ? ELSEWHERE : code;
    return 0;
}
