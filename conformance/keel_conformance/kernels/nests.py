"""Kernels of loops in loops: several reductions and scans, and kernels of more than 65,536 elements."""

from __future__ import annotations

from .kernel_case import BufferFill
from .kernel_template import NUMBERS, KernelTemplate

NESTS: tuple[KernelTemplate, ...] = (
    KernelTemplate(
        "places-of-extremes",
        """
kernel places(a: T[N*M*K]) -> (o: T[N], p: i64[N], q: T[N], r: i64[N]):
  parallel i < N:
    reduce j < M, k < K:
      %0 = load a[M*K*i + K*j + k]
      %1 = position K*j + k
      %2, %3 = reduce argmax %0 %1
      %4, %5 = reduce argmin %0 %1
    store o[i] %2
    store p[i] %3
    store q[i] %4
    store r[i] %5""",
        "NMK",
        ("C3", "C6"),
        NUMBERS,
        {"a": BufferFill("ranked")},
    ),
    KernelTemplate(
        "several-results",
        """
kernel several(a: T[N*M]) -> (o: T[N], p: T[N*M], q: T[N*M], r: T[1]):
  parallel i < N:
    reduce j < M:
      %0 = load a[M*i + j]
      %1 = reduce max %0
      %2 = reduce sum %0
    store o[i] %2
    parallel j < M:
      %3 = load a[M*i + j]
      %4 = sub %3 %1
      store p[M*i + j] %4
      %5 = add %3 %2
      store q[M*i + j] %5
  reduce i < N, j < M:
    %6 = load a[M*i + j]
    %7 = reduce min %6
  store r[0] %7""",
        "NM",
        ("C1", "C3", "C5", "C6"),
        ("f32", "f64", "i32", "i64"),
        {},
    ),
    KernelTemplate(
        "folds-of-folds",
        """
kernel nested(a: T[N*M*K]) -> (o: T[N]):
  parallel i < N:
    reduce j < M:
      reduce k < K:
        %0 = load a[M*K*i + K*j + k]
        %1 = reduce sum %0
      %2 = reduce max %1
    store o[i] %2""",
        "NMK",
        ("C3", "C6"),
        ("f32", "f64", "i32", "i64"),
        {},
    ),
    KernelTemplate(
        "store-in-a-fold",
        """
kernel both(a: T[N*M]) -> (o: T[N], p: T[N*M]):
  parallel i < N:
    reduce j < M:
      %0 = load a[M*i + j]
      %1 = add %0 %0
      store p[M*i + j] %1
      %2 = reduce sum %1
    store o[i] %2""",
        "NM",
        ("C3", "C5", "C6"),
        ("f32", "f64", "i32", "i64"),
        {},
    ),
    KernelTemplate(
        "rows-and-columns",
        """
kernel both(a: T[N*M]) -> (o: T[N], p: T[M]):
  parallel i < N:
    reduce j < M:
      %0 = load a[M*i + j]
      %1 = reduce sum %0
    store o[i] %1
  parallel i < M:
    reduce j < N:
      %2 = load a[M*j + i]
      %3 = reduce min %2
    store p[i] %3""",
        "NM",
        ("C3", "C6"),
        NUMBERS,
        {},
    ),
    KernelTemplate(
        "no-axes",
        """
kernel alone(a: T[M]) -> (o: T[M], p: T[1]):
  parallel:
    scan j < M:
      %0 = load a[j]
      %1 = scan sum %0
      store o[j] %1
  parallel:
    reduce j < M:
      %2 = load a[j]
      %3 = reduce max %2
    store p[0] %3""",
        "M",
        ("C7", "C3", "C6"),
        ("f32", "f64", "i32", "i64"),
        {},
    ),
    KernelTemplate(
        "matmul",
        """
kernel product(a: T[N*K], b: T[K*M]) -> (o: T[N*M]):
  parallel i < N, j < M:
    reduce k < K:
      %0 = load a[K*i + k]
      %1 = load b[M*k + j]
      %2 = mul %0 %1
      %3 = reduce sum %2
    store o[M*i + j] %3""",
        "NMK",
        ("C3", "C1", "C6"),
        ("f32", "f64", "i32", "i64"),
        {},
    ),
)


def _long(letters: str) -> tuple[dict[str, int], ...]:
    """Sizes of three calls: more elements than 65,536, or than 16 bits count, in all or along an axis."""
    sizes = {"N": (70_001, 40_000, 3), "M": (3, 2, 50_000)}
    return tuple({s: sizes[s][call] for s in letters} for call in range(3))


LONG: tuple[KernelTemplate, ...] = (
    KernelTemplate(
        "long-copy",
        """
kernel copy(a: T[N]) -> (o: T[N], p: T[N]):
  parallel i < N:
    %0 = load a[i]
    store o[N - i - 1] %0
    %1 = load a[i // 3 * 2]
    store p[i] %1""",
        "N",
        ("C1", "C5", "C6"),
        ("f32", "f64", "i32", "u8"),
        {},
        sizes=_long("N"),
    ),
    KernelTemplate(
        "long-turn",
        """
kernel turn(a: T[N*M], b: T[M]) -> (o: T[N*M]):
  parallel i < N, j < M:
    %0 = load a[N*j + i]
    %1 = load b[j]
    %2 = add %0 %1
    store o[M*i + j] %2""",
        "NM",
        ("C1", "C5", "C6"),
        ("f32", "i64"),
        {},
        sizes=_long("NM"),
    ),
    KernelTemplate(
        "long-positions",
        """
kernel positions(a: i64[1]) -> (o: i64[N]):
  %0 = load a[0]
  parallel i < N:
    %1 = position 5*i + 1
    %2 = position i % 40000
    %3 = lt %0 %2
    %4 = where %3 %1 %2
    store o[i] %4""",
        "N",
        ("C1", "C6"),
        ("i64",),
        {"a": BufferFill("ints", 20_000, 30_000)},
        sizes=_long("N"),
    ),
    KernelTemplate(
        "long-places",
        """
kernel places(a: T[N*M], b: i64[M]) -> (o: i64[N*M], p: T[N], q: i64[N]):
  parallel i < N:
    scan j < M:
      %0 = load a[M*i + j]
      %1 = position M*i + j
      %2, %3 = scan argmax %0 %1
      %4 = load b[j]
      %5 = add %3 %4
      store o[M*i + j] %5
    reduce j < M:
      %6 = load a[M*i + j]
      %7 = position j + M*i
      %8, %9 = reduce argmin %6 %7
    store p[i] %8
    store q[i] %9""",
        "NM",
        ("C3", "C7", "C6"),
        ("f32", "i32", "u8"),
        {},
        sizes=_long("NM"),
    ),
    KernelTemplate(
        "long-folds",
        """
kernel folds(a: T[N]) -> (o: T[1], p: i64[1], q: T[1], r: T[N]):
  reduce i < N:
    %0 = load a[i]
    %1 = position i
    %2 = reduce sum %0
    %3, %4 = reduce argmax %0 %1
  store o[0] %2
  store p[0] %4
  store q[0] %3
  scan i < N:
    %5 = load a[i]
    %6 = scan sum %5
    store r[i] %6""",
        "N",
        ("C3", "C7", "C6"),
        ("f32", "f64", "i32", "i64"),
        {},
        sizes=_long("N"),
    ),
)
