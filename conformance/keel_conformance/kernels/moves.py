"""Kernels that move elements: copies, masks, indices that are data, checks, scatters."""

from __future__ import annotations

from .kernel_case import BufferFill
from .kernel_template import ALL, NUMBERS, SAME, ZERO, KernelTemplate

MOVES: tuple[KernelTemplate, ...] = (
    KernelTemplate(
        "copy",
        """
kernel copy(a: T[N]) -> (o: T[N]):
  parallel i < N:
    %0 = load a[i]
    store o[i] %0""",
        "N",
        ("C1", "C5", "C6"),
        ALL,
        {},
    ),
    KernelTemplate(
        "turn",
        """
kernel turn(a: T[N*M]) -> (o: T[N*M]):
  parallel i < N, j < M:
    %0 = load a[N*j + i]
    store o[M*i + j] %0""",
        "NM",
        ("C1", "C5", "C6"),
        ALL,
        {},
    ),
    KernelTemplate(
        "turn-three",
        """
kernel turn(a: T[N*M*K]) -> (o: T[N*M*K]):
  parallel i < K, j < N, k < M:
    %0 = load a[N*M*i + N*k + j]
    store o[N*M*i + M*j + k] %0""",
        "NMK",
        ("C1", "C5", "C6"),
        ("f32", "i8", "f64"),
        {},
    ),
    KernelTemplate(
        "backwards",
        """
kernel backwards(a: T[N*M]) -> (o: T[N*M]):
  parallel i < N, j < M:
    %0 = load a[M*i - j + M - 1]
    store o[M*i + j] %0""",
        "NM",
        ("C1", "C6"),
        NUMBERS,
        {},
        empty=False,
    ),
    KernelTemplate(
        "every-second",
        """
kernel second(a: T[2*N]) -> (o: T[N], p: T[N]):
  parallel i < N:
    %0 = load a[2*i]
    %1 = load a[2*i + 1]
    store o[i] %1
    store p[i] %0""",
        "N",
        ("C1", "C6"),
        NUMBERS,
        {},
    ),
    KernelTemplate(
        "interleaved",
        """
kernel interleaved(a: T[N], b: T[N]) -> (o: T[2*N]):
  parallel i < N:
    %0 = load a[i]
    %1 = load b[i]
    store o[2*i] %0
    store o[2*i + 1] %1""",
        "N",
        ("C1", "C5", "C6"),
        NUMBERS,
        {},
    ),
    KernelTemplate(
        "quotient-and-remainder",
        """
kernel split(a: T[N], b: T[5]) -> (o: T[N]):
  parallel i < N:
    %0 = load b[i % 5]
    %1 = load a[i // 3]
    %2 = add %0 %1
    store o[i] %2""",
        "N",
        ("C1", "C6"),
        NUMBERS,
        {},
        empty=False,
    ),
    KernelTemplate(
        "quotients-of-negatives",
        """
kernel negative(a: T[7], b: T[N + 9]) -> (o: T[N], p: i64[N], q: i64[N]):
  parallel i < N:
    %0 = load a[(i - 5) % 7]
    %1 = load b[(i - 8) // 3 + 3]
    %2 = add %0 %1
    store o[i] %2
    %3 = position (i - 8) // 3
    store p[i] %3
    %4 = position (i - 5) % 7 - 9
    store q[i] %4""",
        "N",
        ("C1", "C6"),
        NUMBERS,
        {},
        empty=False,
    ),
    KernelTemplate(
        "turned-round",
        """
kernel round(a: T[N*M]) -> (o: T[N*M]):
  parallel i < N, j < M:
    %0 = load a[M*i + (j + M - 1) % M]
    store o[M*i + j] %0""",
        "NM",
        ("C1", "C6"),
        NUMBERS,
        {},
        empty=False,
    ),
    KernelTemplate(
        "broadcast",
        """
kernel broadcast(a: T[N], b: T[M], c: T[1]) -> (o: T[N*M]):
  parallel i < N, j < M:
    %0 = load a[i]
    %1 = load b[j]
    %2 = load c[0]
    %3 = mul %0 %1
    %4 = add %3 %2
    store o[M*i + j] %4""",
        "NM",
        ("C1", "C6"),
        NUMBERS,
        {},
    ),
    KernelTemplate(
        "positions",
        """
kernel positions(a: i64[1]) -> (o: i64[N*M]):
  parallel i < N, j < M:
    %0 = position 3*i - j + N
    %1 = load a[0]
    %2 = mul %0 %1
    store o[M*i + j] %2""",
        "NM",
        ("C1", "C6"),
        ("i64",),
        {},
    ),
    KernelTemplate(
        "masked-load",
        """
kernel masked(a: T[N*M], b: b8[N*M]) -> (o: T[N*M]):
  parallel i < N, j < M:
    %0 = load b[M*i + j]
    %1 = load a[M*i + j] if %0
    store o[M*i + j] %1""",
        "NM",
        ("C4", "C1", "C6"),
        ALL,
        {},
    ),
    KernelTemplate(
        "masked-beyond-the-end",
        """
kernel beyond(a: T[N]) -> (o: T[N]):
  %0 = const 0 : i64
  %1 = position N
  parallel i < N:
    %2 = position i - 2
    %3 = ge %2 %0
    %4 = load a[i - 2] if %3
    %5 = position i + 3
    %6 = lt %5 %1
    %7 = load a[i + 3] if %6
    %8 = add %4 %7
    store o[i] %8""",
        "N",
        ("C4", "C6"),
        NUMBERS,
        {},
    ),
    KernelTemplate(
        "masked-store",
        """
kernel masked(a: T[N*M], b: b8[N]) -> (o: inout T[N*M]):
  parallel i < N, j < M:
    %0 = load b[i]
    %1 = load a[M*i + j]
    store o[M*i + j] %1 if %0""",
        "NM",
        ("C4", "C5", "C6"),
        ALL,
        {},
    ),
    KernelTemplate(
        "window",
        """
kernel window(a: T[N*M]) -> (o: T[N*M]):
  %0 = const 0 : i64
  %1 = position M
  parallel i < N, j < M:
    reduce k < 3:
      %2 = position j + k - 1
      %3 = ge %2 %0
      %4 = lt %2 %1
      %5 = and %3 %4
      %6 = load a[M*i + j + k - 1] if %5
      %7 = reduce sum %6
    store o[M*i + j] %7""",
        "NM",
        ("C4", "C3", "C6"),
        NUMBERS,
        {},
    ),
    KernelTemplate(
        "triangle",
        """
kernel triangle(a: T[N*M]) -> (o: T[N], p: inout T[N*M]):
  parallel i < N:
    %0 = position i
    reduce j < M:
      %1 = position j
      %2 = le %1 %0
      %3 = load a[M*i + j] if %2
      %4 = reduce sum %3
    store o[i] %4
    parallel j < M:
      %5 = position j
      %6 = lt %5 %0
      store p[M*i + j] %4 if %6""",
        "NM",
        ("C4", "C3", "C5", "C6"),
        NUMBERS,
        {},
    ),
    KernelTemplate(
        "gather",
        """
kernel gather(a: T[7*M], b: i64[N]) -> (o: T[N*M]):
  parallel i < N, j < M:
    %0 = load b[i]
    %1 = load a[M*(%0 < 7) + j]
    store o[M*i + j] %1""",
        "NM",
        ("C1", "C6"),
        ALL,
        {"b": BufferFill("ints", 0, 7)},
    ),
    KernelTemplate(
        "gather-narrow-index",
        """
kernel gather(a: T[7], b: i32[N]) -> (o: T[N]):
  parallel i < N:
    %0 = load b[i]
    %1 = load a[(%0 < 7)]
    store o[i] %1""",
        "N",
        ("C1", "C6"),
        NUMBERS,
        {"b": BufferFill("ints", 0, 7)},
    ),
    KernelTemplate(
        "checked",
        """
kernel checked(a: T[7*M], b: i64[N]) -> (o: T[N*M], t: inout i64[2]):
  parallel i < N, j < M:
    %0 = load b[i]
    %1 = check t[1]: %0 < 7 wrap
    %2 = load a[M*(%1 < 7) + j]
    store o[M*i + j] %2""",
        "NM",
        ("C8", "C1", "C6"),
        NUMBERS,
        {"b": BufferFill("ints", -7, 7), "t": ZERO},
    ),
    KernelTemplate(
        "checked-and-wrong",
        """
kernel wrong(a: T[7], b: i64[N]) -> (o: T[N], t: inout i64[1]):
  parallel i < N:
    %0 = load b[i]
    %1 = check t[0]: %0 < 7
    %2 = load a[(%1 < 7)]
    store o[i] %2""",
        "N",
        ("C8", "C6"),
        NUMBERS,
        {"a": SAME, "b": BufferFill("ints", 6, 8), "t": ZERO},
    ),
    KernelTemplate(
        "checked-below",
        """
kernel below(a: T[N], b: i64[N*M]) -> (o: T[N], t: inout i64[3]):
  parallel i < N:
    reduce j < M:
      %0 = load b[M*i + j]
      %1 = check t[2]: %0 < N wrap
      %2 = load a[(%1 < N)]
      %3 = reduce max %2
    store o[i] %3""",
        "NM",
        ("C8", "C3", "C6"),
        NUMBERS,
        {"a": SAME, "b": BufferFill("ints", -1026, -1025), "t": ZERO},
        empty=False,
    ),
    KernelTemplate(
        "checked-and-masked",
        """
kernel masked(a: T[M], b: i64[N], c: b8[N]) -> (o: T[N], t: inout i64[2]):
  parallel i < N:
    %0 = load b[i]
    %1 = load c[i]
    %2 = check t[0]: %0 < M wrap if %1
    %3 = load a[(%2 < M)] if %1
    %4 = const 2000 : i64
    %5 = ge %0 %4
    %6 = check t[1]: %0 < M if %5
    %7 = load a[(%6 < M)] if %5
    %8 = add %3 %7
    store o[i] %8""",
        "NM",
        ("C8", "C4", "C6"),
        NUMBERS,
        {"a": SAME, "b": BufferFill("ints", 1999, 2000), "t": ZERO},
        empty=False,
    ),
    KernelTemplate(
        "scatter",
        """
kernel scatter(a: T[N], b: i64[N]) -> (o: T[N]):
  parallel i < N:
    %0 = load b[i]
    %1 = load a[i]
    store o[(%0 < N)] %1""",
        "N",
        ("C1", "C5", "C6"),
        NUMBERS,
        {"b": BufferFill("places")},
    ),
    KernelTemplate(
        "in-place",
        """
kernel place(a: T[N]) -> (o: inout T[N]):
  parallel i < N:
    %0 = load o[i]
    %1 = load a[i]
    %2 = sub %0 %1
    store o[i] %2""",
        "N",
        ("C1", "C5", "C6"),
        NUMBERS,
        {},
    ),
)
