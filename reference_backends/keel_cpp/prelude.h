// What every translation unit starts with: types, casts, integer arithmetic, lanes, threads.  No header is included.
// Every function is branch-free where the vectoriser has to see through it.

#define INLINE static inline __attribute__((always_inline))
#define SHARED static __attribute__((noinline, noclone))  // compiled once, however many kernels call it
#define BODY __attribute__((always_inline))
#define SIMD _Pragma("omp simd")
#define ALONE asm volatile("")                               // in a loop's body: not to be vectorised
#define UNROLL _Pragma("GCC unroll 16")
#define INF __builtin_inf()
#define NOTANUMBER __builtin_nan("")

using i8 = __INT8_TYPE__;
using i16 = __INT16_TYPE__;
using i32 = __INT32_TYPE__;
using i64 = __INT64_TYPE__;
using u8 = __UINT8_TYPE__;
using u16 = __UINT16_TYPE__;
using u32 = __UINT32_TYPE__;
using u64 = __UINT64_TYPE__;
enum class bf16 : u16 {};  // only loaded, stored, selected and cast
enum class f16 : u16 {};
enum class c64 : u64 {};  // only loaded, stored and selected
enum class c128 : unsigned __int128 {};

#ifdef __AVX512F__
enum { L = 32 };  // lanes of a reduction: two vectors of float hide the latency of one operation
#else
enum { L = 16 };
#endif

template <class T, class U> constexpr bool same = false;
template <class T> constexpr bool same<T, T> = true;
template <class T> constexpr bool is_float = same<T, float> || same<T, double>;

template <class T, class U> INLINE T bits(U x) { return __builtin_bit_cast(T, x); }

// ---- casts -------------------------------------------------------------------------------------------------------

INLINE float widen(float x) { return x; }
INLINE float widen(bf16 x) { return bits<float>(u32(x) << 16); }

INLINE float widen(f16 h) {  // 2^112 moves the exponent and makes subnormals normal; infinity and NaN are put back
  const u32 x = u32(u16(h) & 0x7fff) << 13, sign = u32(u16(h) & 0x8000) << 16;
  const u32 y = bits<u32>(bits<float>(x) * 0x1p112f);
  return bits<float>((x >= 0x0f800000 ? x | 0x7f800000 : y) | sign);
}

INLINE bf16 to_bf16(float x) {  // to nearest, ties to even; NaN stays NaN
  const u32 u = bits<u32>(x);
  return bf16(u16(x != x ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16));
}

INLINE f16 to_f16(float x) {
  const u32 u = bits<u32>(x), a = u & 0x7fffffff, sign = u >> 16 & 0x8000;
  const u32 normal = (a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13;
  const u32 tiny = bits<u32>(bits<float>(a) + 0.5f) - 0x3f000000;  // the addition rounds to a multiple of 2^-24
  u32 h = a < 0x38800000 ? tiny : normal;
  h = a >= 0x477ff000 ? 0x7c00 : h;
  h = a > 0x7f800000 ? 0x7e00 : h;
  return f16(u16(h | sign));
}

template <class T, class U> INLINE T cast(U x) {
  if constexpr (same<T, U>) return x;
  else if constexpr (same<U, bf16> || same<U, f16>) return cast<T>(widen(x));
  else if constexpr (same<T, bf16>) return to_bf16(float(x));
  else if constexpr (same<T, f16>) return to_f16(float(x));
  else if constexpr (same<T, bool>) return x != U(0);
  else if constexpr (is_float<U> && sizeof(T) < 4) return T(i32(x));  // a negative number wraps, as in PyTorch
  else if constexpr (is_float<U> && same<T, u32>) return T(i64(x));
  else return T(x);
}

// ---- integers: they wrap, and division by zero is defined (0) so that a lane nobody looks at cannot trap -----------

template <class T> struct Unsigned { using type = T; };
template <> struct Unsigned<i8> { using type = u8; };
template <> struct Unsigned<i16> { using type = u16; };
template <> struct Unsigned<i32> { using type = u32; };
template <> struct Unsigned<i64> { using type = u64; };
template <> struct Unsigned<bool> { using type = u8; };
template <class T> using U = typename Unsigned<T>::type;

template <class T> INLINE T neg(T x) { return T(U<T>(0) - U<T>(x)); }
template <class T> INLINE T add(T x, T y) {
  if constexpr (is_float<T>) return x + y;
  else return T(U<T>(x) + U<T>(y));
}
template <class T> INLINE T sub(T x, T y) { return T(U<T>(x) - U<T>(y)); }
template <class T> INLINE T mul(T x, T y) {
  if constexpr (is_float<T>) return x * y;
  else if constexpr (sizeof(T) < 4) return T(u32(U<T>(x)) * u32(U<T>(y)));
  else return T(U<T>(x) * U<T>(y));
}
template <class T> INLINE T either(T x, T y) { return x | y; }
template <class T> INLINE T both(T x, T y) { return x & y; }
template <class T> INLINE T exclusive(T x, T y) { return x ^ y; }
template <class T> INLINE T shl(T x, T y) { return T(U<T>(x) << y); }

template <class T> INLINE T truncdiv(T x, T y) {
  if constexpr (sizeof(T) < 8) return y == 0 ? T(0) : T(i64(double(x) / double(y)));  // exact, and it vectorises
  else if constexpr (T(-1) < T(0)) return y == 0 ? T(0) : y == -1 ? neg(x) : x / y;
  else return y == 0 ? T(0) : x / y;
}

// ---- numbers ------------------------------------------------------------------------------------------------------

template <class T> constexpr T highest = T(-1) < T(0) ? T(U<T>(~U<T>(0)) >> 1) : T(~U<T>(0));
template <class T> constexpr T lowest = T(-1) < T(0) ? T(-highest<T> - 1) : T(0);
template <> constexpr float highest<float> = INF;
template <> constexpr float lowest<float> = -INF;
template <> constexpr double highest<double> = INF;
template <> constexpr double lowest<double> = -INF;
template <> constexpr bool highest<bool> = true;
template <> constexpr bool lowest<bool> = false;

template <class T> INLINE T minimum(T x, T y) {
  if constexpr (is_float<T>) return x < y ? x : x != x ? x : y;
  else return x < y ? x : y;
}
template <class T> INLINE T maximum(T x, T y) {
  if constexpr (is_float<T>) return x > y ? x : x != x ? x : y;
  else return x > y ? x : y;
}
template <class T> INLINE T sign(T x) { return T(T(x > T(0)) - T(x < T(0))); }
INLINE float abs(float x) { return __builtin_fabsf(x); }
INLINE double abs(double x) { return __builtin_fabs(x); }
template <class T> INLINE T abs(T x) { return x < T(0) ? neg(x) : x; }
template <class T> INLINE bool isinf(T x) { return abs(x) == T(INF); }

// ---- sizes --------------------------------------------------------------------------------------------------------

INLINE i64 least(i64 x, i64 y) { return x < y ? x : y; }
INLINE i64 most(i64 x, i64 y) { return x > y ? x : y; }
INLINE i64 blocks(i64 size, i64 by) { return (size + by - 1) / by; }
INLINE i64 size_div(i64 x, i64 by) { return x / by - (x % by != 0 && (x % by < 0) != (by < 0)); }
INLINE i64 size_mod(i64 x, i64 by) { return x - by * size_div(x, by); }
INLINE i64 size_pow(i64 x, i64 n) { i64 y = 1; for (; n > 0; --n) y *= x; return y; }

// ---- checks: an index x without a place among n elements is recorded, as x + 1, or as x where that is negative --------

INLINE i64 wrapped(i64 x, i64 n) { return x < 0 ? add(x, n) : x; }  // counted from the end
static __attribute__((noinline, cold)) void record(i64* trouble, i64 x) { __atomic_store_n(trouble, x < 0 ? x : add(x, i64(1)), __ATOMIC_RELAXED); }
INLINE i64 place(i64 x, i64 at, i64 n, bool on, i64* trouble) {  // `at` is x or wrapped(x, n)
  if (__builtin_expect(u64(at) < u64(n), 1)) return at;
  if (on) record(trouble, x);
  return 0;
}
// In lanes the worst index is kept, and the others go to some place: no branch.  n is positive.
INLINE u64 worse(u64 x, u64 y) { return x > y ? x : y; }
INLINE i64 inside(i64 at, i64 n) { return i64(u64(at) < u64(n) ? u64(at) : u64(n) - 1); }
INLINE void settle(u64 worst, i64 n, bool wraps, i64* trouble) {
  if (worst >= u64(n)) record(trouble, wraps && i64(worst) < 0 ? sub(i64(worst), n) : i64(worst));
}
template <int N> SHARED void settle(u64 (&worst)[N], i64 n, bool wraps, i64* trouble) {
  for (int l = 1; l < N; ++l) worst[0] = worse(worst[0], worst[l]);
  settle(worst[0], n, wraps, trouble);
}

// ---- lanes --------------------------------------------------------------------------------------------------------

template <class T, int N> INLINE void fill(T (&a)[N], T x) {
  typedef T Vector __attribute__((vector_size(64), aligned(alignof(T)), may_alias));
  constexpr int lanes = 64 / sizeof(T);
  if constexpr (N % lanes == 0) {
    for (int k = 0; k < N / lanes; ++k) ((Vector*)a)[k] = x - Vector{};
  } else {
    SIMD for (int l = 0; l < N; ++l) a[l] = x;
  }
}

// A sum of floats runs at most 32 steps in its own precision and goes on in double; a sum of doubles carries the rounding
// error of each step along (Knuth, TAOCP 2, 4.2.2, theorem B).
INLINE void flush(double& sum, double& error, double part) {
  const double next = sum + part, back = next - sum;
  error += (sum - (next - back)) + (part - back);
  sum = next;
}
template <int N> SHARED void flush(double (&sum)[N], float (&part)[N]) {
  SIMD for (int l = 0; l < N; ++l) sum[l] += part[l];
}
template <int N> SHARED void flush(double (&sum)[N], double (&error)[N], double (&part)[N]) {
  SIMD for (int l = 0; l < N; ++l) flush(sum[l], error[l], part[l]);
}

template <int N, class F> INLINE void halve(F combine) {  // combine(l, l + N / 2), then half as many, down to one
  SIMD for (int l = 0; l < N / 2; ++l) combine(l, l + N / 2);
  if constexpr (N > 2) halve<N / 2>(combine);
}
template <auto combine, class T, int N> SHARED T fold(T (&a)[N]) {
  halve<N>([&](int l, int m) BODY { a[l] = combine(a[l], a[m]); });
  return a[0];
}
INLINE double total(double sum, double error) { return error - error == 0 ? sum + error : sum; }  // not inf - inf
template <int N> SHARED double total(double (&sum)[N]) { return fold<add<double>>(sum); }
template <int N> SHARED double total(float (&part)[N]) {
  double sum[N];
  SIMD for (int l = 0; l < N; ++l) sum[l] = part[l];
  halve<N>([&](int l, int m) BODY { sum[l] += sum[m]; });
  return sum[0];
}
template <int N> SHARED double total(double (&sum)[N], double (&error)[N]) {
  double all = 0, rest = 0;
  for (int l = 0; l < N; ++l) flush(all, rest, sum[l]), rest += error[l];
  return total(all, rest);
}

// ---- tiles --------------------------------------------------------------------------------------------------------

#if defined(__AVX512BW__)
enum { VECTOR = 64 };
#elif defined(__AVX2__)
enum { VECTOR = 32 };
#else
enum { VECTOR = 16 };
#endif
template <int... K> struct Numbers {};
template <int Bytes> struct Word { using type = i16; };
template <> struct Word<4> { using type = i32; };
template <> struct Word<8> { using type = i64; };

// Swaps the off-diagonal S x S blocks of each 2S x 2S block of two rows, which lie S apart.
template <int S, int N, class V, int... K> INLINE void exchange(V& a, V& b, Numbers<K...>) {
  const V low = __builtin_shuffle(a, b, V{((K & S) ? K - S + N : K)...});
  b = __builtin_shuffle(a, b, V{((K & S) ? K + N : K + S)...});
  a = low;
}
template <int S, int N, class V> INLINE void transpose(V (&row)[N]) {
  _Pragma("GCC unroll 64") for (int i = 0; i < N; ++i)
    if (!(i & S)) exchange<S, N>(row[i], row[i + S], Numbers<__integer_pack(N)...>());
  if constexpr (2 * S < N) transpose<2 * S, N>(row);
}

// to[c * width + r] = from[r * step + c] for r < rows, c < columns; any type of 2, 4 or 8 bytes goes as an integer.
template <class T> SHARED void turn(T* to, i64 width, const T* from, i64 step, i64 rows, i64 columns) {
  typedef typename Word<sizeof(T)>::type Vector __attribute__((vector_size(VECTOR), aligned(sizeof(T)), may_alias));
  constexpr int N = VECTOR / sizeof(T);
  const i64 r_end = rows / N * N, c_end = columns / N * N;
  for (i64 r = 0; r < r_end; r += N)
    for (i64 c = 0; c < c_end; c += N) {
      Vector row[N];
      _Pragma("GCC unroll 64") for (int i = 0; i < N; ++i) row[i] = *(const Vector*)(from + (r + i) * step + c);
      transpose<1, N>(row);
      _Pragma("GCC unroll 64") for (int i = 0; i < N; ++i) *(Vector*)(to + (c + i) * width + r) = row[i];
    }
  for (i64 c = 0; c < columns; ++c)
    for (i64 r = c < c_end ? r_end : 0; r < rows; ++r) to[c * width + r] = from[r * step + c];
}

// ---- threads: the OpenMP runtime that PyTorch has loaded; without one everything runs in the caller ------------------

extern "C" {
__attribute__((weak)) void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
__attribute__((weak)) int omp_get_max_threads();
__attribute__((weak)) int omp_get_num_threads();
__attribute__((weak)) int omp_get_thread_num();
}

template <class F> struct Team {
  const F& run;
  i64 tasks;
  static __attribute__((noinline)) void call(const F& run, i64 from, i64 to) {
    const F own = run;  // its captures become locals
    own(from, to);
  }
  static void member(void* at) {
    const Team& team = *(const Team*)at;
    const i64 n = omp_get_num_threads(), t = omp_get_thread_num();
    const i64 from = team.tasks * t / n, to = team.tasks * (t + 1) / n;
    if (from < to) call(team.run, from, to);
  }
};

// run(from, to) on parts of 0 <= task < tasks; `cost` is one task's work in scalar operations.
template <class F> INLINE void parallel(i64 tasks, i64 cost, const F& run) {
  Team<F> team{run, tasks};
  if (tasks < 2 || tasks * cost < 32768 || !GOMP_parallel || omp_get_max_threads() < 2) {
    if (tasks > 0) team.call(run, 0, tasks);
  } else {
    GOMP_parallel(team.member, &team, 0, 0);
  }
}
