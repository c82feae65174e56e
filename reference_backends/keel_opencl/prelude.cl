// The start of every program: conversions, functions of sizes, and atomic stores.
#pragma OPENCL FP_CONTRACT OFF
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif

float widen_half(ushort x) { return vload_half(0, (const half *)&x); }
ushort to_half(float x) { ushort y; vstore_half_rte(x, 0, (half *)&y); return y; }
float widen_bfloat(ushort x) { return as_float((uint)x << 16); }
ushort to_bfloat(float x) {  // to nearest, ties to even; NaN stays NaN
  const uint u = as_uint(x);
  return isnan(x) ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

long floordiv(long a, long b) { return a / b - ((a % b != 0) & ((a < 0) != (b < 0))); }
long floormod(long a, long b) { return a - b * floordiv(a, b); }
long most(long a, long b) { return a > b ? a : b; }
long least(long a, long b) { return a < b ? a : b; }

// combine(old, value) is stored in one step: only if no other item has stored since `old` was read.
#define ATOMIC(name, T, U, exchange, combine)                            \
  void name##_##T(volatile __global T *at, T value) {                    \
    volatile __global U *bits = (volatile __global U *)at;               \
    U last = *bits, now;                                                 \
    do {                                                                 \
      now = last;                                                        \
      const T old = as_##T(now);                                         \
      last = exchange(bits, now, as_##U((T)(combine)));                  \
    } while (last != now);                                               \
  }
#define ATOMICS(T, U, exchange)                                          \
  ATOMIC(store_add, T, U, exchange, old + value)                         \
  ATOMIC(store_mul, T, U, exchange, old * value)                         \
  ATOMIC(store_min, T, U, exchange, old < value || old != old ? old : value) \
  ATOMIC(store_max, T, U, exchange, old > value || old != old ? old : value)
ATOMICS(float, uint, atomic_cmpxchg)
ATOMICS(int, uint, atomic_cmpxchg)
ATOMICS(uint, uint, atomic_cmpxchg)
#ifdef cl_khr_int64_base_atomics
ATOMICS(long, ulong, atom_cmpxchg)
ATOMICS(ulong, ulong, atom_cmpxchg)
#ifdef cl_khr_fp64
ATOMICS(double, ulong, atom_cmpxchg)
#endif
#endif
