"""Kernels written by hand, as texts: folds and scans in every kind of nest, masks, indices, stores.

In a text, T is the dtype, N, M and K are sizes: numbers, or symbols of the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from keel.loops import DTYPE_NAMES, MONOIDS, Kernel, parse

from .made import Fill, Made

SAME, ZERO = Fill("ints", 2, 3), Fill("ints", 0, 1)
"""Wherever a wrong index leads, there is the same; what a check records in was 0."""
SIZES = (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025)
"""Around vector and tile boundaries."""


@dataclass(frozen=True)
class Form:
    """``text`` is the kernel, ``letters`` its sizes, ``fills`` its buffers where they are no small integers."""

    name: str
    text: str
    letters: str
    clauses: tuple[str, ...]
    dtypes: tuple[str, ...]
    fills: Mapping[str, Fill]
    empty: bool = True  # sizes may be 0
    sizes: tuple[Mapping[str, int], ...] = ()  # of each call, where they are no usual ones

    def kernel(self, dtype: str, sizes: Mapping[str, int] | None) -> Kernel:
        """The kernel for these sizes; for all of them without."""
        text = self.text.strip().replace("T[", f"{dtype}[").replace(": T", f": {dtype}")
        head, _, body = text.partition("\n")
        if sizes is None:
            used = [f"{s} >= 0" if self.empty else s for s in self.letters]
            return parse(f"{head[:-1]} where {', '.join(used)}:\n{body}\n")
        table = {ord(s): str(n) for s, n in sizes.items()}
        return parse(_sized(head, table) + "\n" + _sized(body, table) + "\n")


def _sized(text: str, table: Mapping[int, str]) -> str:
    """Only capital letters that stand alone are sizes."""
    out = []
    for k, c in enumerate(text):
        alone = not (k and (text[k - 1].isalnum() or text[k - 1] == "_")) and not (
            k + 1 < len(text) and (text[k + 1].isalnum() or text[k + 1] == "_")
        )
        out.append(table.get(ord(c), c) if alone else c)
    return "".join(out)


def forms() -> Iterator[Form]:
    yield from _folds()
    yield from _scans()
    for name, (text, letters, clauses, dtypes, fills, empty) in OTHERS.items():
        yield Form(name, text, letters, clauses, dtypes, fills, empty)
    yield from _atomics()
    yield from _constants()
    for name, (text, letters, clauses, dtypes, fills) in LONG.items():
        sizes = {"N": (70_001, 40_000, 3), "M": (3, 2, 50_000)}
        yield Form(
            name,
            text,
            letters,
            clauses,
            dtypes,
            fills,
            True,
            tuple({s: sizes[s][call] for s in letters} for call in range(3)),
        )


NUMBERS = ("f32", "f64", "i32", "i64", "i8", "u8", "i16")
FLOATS = ("f32", "f64")
NESTS: Mapping[str, tuple[str, str]] = {
    # What is before the fold, and the index of the element; the fold's place in the output.
    "rows": ("parallel i < N:\n    reduce j < M:", "M*i + j"),
    "columns": ("parallel i < N:\n    reduce j < M:", "N*j + i"),
    "two-axes": ("parallel i < N:\n    reduce j < M, k < K:", "M*K*i + K*j + k"),
    "outer-and-inner": ("parallel i < N:\n    reduce j < M, k < K:", "N*K*j + K*i + k"),
}


def _folds() -> Iterator[Form]:
    for monoid in MONOIDS:
        dtypes = (
            FLOATS
            if monoid == "welford"
            else ("b8",)
            if monoid in ("any", "all")
            else ("i32", "i64", "u8", "b8")
            if monoid == "xor"
            else NUMBERS
        )
        for nest, (loops, at) in NESTS.items():
            letters = "NMK" if "K" in loops + at else "NM"
            text = _text("fold", "reduce", monoid, loops, at, "*".join(letters), "N", "i")
            yield Form(f"fold-{monoid}-{nest}", text, letters, ("C1", "C3", "C6"), dtypes, _fill(monoid))
            if monoid in ("any", "all", "max", "min", "argmax", "argmin"):
                yield Form(
                    f"fold-{monoid}-{nest}-alike",
                    text,
                    letters,
                    ("C1", "C3", "C6"),
                    dtypes,
                    {"a": Fill("alike")},
                    sizes=tuple({"N": n, "M": m, "K": 4} for n, m in ((3, 256), (17, 64), (2, 512))),
                )
        text = _text("fold", "reduce", monoid, "reduce j < M:", "j", "M", "1", "0")
        yield Form(f"fold-{monoid}-whole", text, "M", ("C1", "C3", "C6"), dtypes, _fill(monoid))


def _state(monoid: str, indent: str, axis: str) -> tuple[str, str, tuple[str, ...]]:
    """Statements that make the state of one element, its values, and their dtypes."""
    if monoid == "welford":
        lines = f"{indent}%1 = const 0.0 : T\n{indent}%2 = const 1.0 : T\n"
        return lines, "%0 %1 %2", ("T", "T", "T")
    if monoid.startswith("arg"):
        return f"{indent}%1 = position {axis}\n", "%0 %1", ("T", "i64")
    return "", "%0", ("T",)


def _scans() -> Iterator[Form]:
    for monoid in ("sum", "prod", "max", "min", "any", "all", "xor", "argmax", "argmin"):
        dtypes = ("b8",) if monoid in ("any", "all") else ("i32", "u8") if monoid == "xor" else NUMBERS
        for nest, at in (("rows", "M*i + j"), ("columns", "N*j + i")):
            text = _text("scanned", "scan", monoid, "parallel i < N:\n    scan j < M:", at, "N*M", "N*M", at)
            yield Form(f"scan-{monoid}-{nest}", text, "NM", ("C7", "C1", "C6"), dtypes, _fill(monoid))


def _text(name: str, what: str, monoid: str, loops: str, at: str, held: str, size: str, place: str) -> str:
    """A kernel that reduces or scans ``held`` elements, read ``at`` an index in ``loops``, to outputs of ``size``
    elements, stored at a ``place``: of a fold after its loop, of a scan within.
    """
    inner, after = ("      ", "    ") if "\n" in loops else ("    ", "  ")
    before, args, outs = _state(monoid, inner, "j")
    state = [f"%{90 + n}" for n in range(len(outs))]
    results = ", ".join(f"o{n}: {dtype}[{size}]" for n, dtype in enumerate(outs))
    lines = [
        f"kernel {name}(a: T[{held}]) -> ({results}):",
        f"  {loops}",
        f"{inner}%0 = load a[{at}]",
        *before.splitlines(),
        f"{inner}{', '.join(state)} = {what} {monoid} {args}",
        *(f"{inner if what == 'scan' else after}store o{n}[{place}] {value}" for n, value in enumerate(state)),
    ]
    return "\n".join(lines)


def _fill(monoid: str) -> Mapping[str, Fill]:
    kind = {"prod": "factors", "max": "ranked", "min": "ranked", "argmax": "ranked", "argmin": "ranked"}.get(monoid, "")
    return {"a": Fill(kind)} if kind else {}


ALL = (*NUMBERS, "bf16", "f16", "u16", "u32", "u64", "b8", "c64", "c128")
OTHERS: Mapping[str, tuple[str, str, tuple[str, ...], tuple[str, ...], Mapping[str, Fill], bool]] = {
    "copy": (
        """
kernel copy(a: T[N]) -> (o: T[N]):
  parallel i < N:
    %0 = load a[i]
    store o[i] %0""",
        "N",
        ("C1", "C5", "C6"),
        ALL,
        {},
        True,
    ),
    "turn": (
        """
kernel turn(a: T[N*M]) -> (o: T[N*M]):
  parallel i < N, j < M:
    %0 = load a[N*j + i]
    store o[M*i + j] %0""",
        "NM",
        ("C1", "C5", "C6"),
        ALL,
        {},
        True,
    ),
    "turn-three": (
        """
kernel turn(a: T[N*M*K]) -> (o: T[N*M*K]):
  parallel i < K, j < N, k < M:
    %0 = load a[N*M*i + N*k + j]
    store o[N*M*i + M*j + k] %0""",
        "NMK",
        ("C1", "C5", "C6"),
        ("f32", "i8", "f64"),
        {},
        True,
    ),
    "backwards": (
        """
kernel backwards(a: T[N*M]) -> (o: T[N*M]):
  parallel i < N, j < M:
    %0 = load a[M*i - j + M - 1]
    store o[M*i + j] %0""",
        "NM",
        ("C1", "C6"),
        NUMBERS,
        {},
        False,
    ),
    "every-second": (
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
        True,
    ),
    "interleaved": (
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
        True,
    ),
    "quotient-and-remainder": (
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
        False,
    ),
    "quotients-of-negatives": (
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
        False,
    ),
    "turned-round": (
        """
kernel round(a: T[N*M]) -> (o: T[N*M]):
  parallel i < N, j < M:
    %0 = load a[M*i + (j + M - 1) % M]
    store o[M*i + j] %0""",
        "NM",
        ("C1", "C6"),
        NUMBERS,
        {},
        False,
    ),
    "broadcast": (
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
        True,
    ),
    "positions": (
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
        True,
    ),
    "masked-load": (
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
        True,
    ),
    "masked-beyond-the-end": (
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
        True,
    ),
    "masked-store": (
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
        True,
    ),
    "window": (
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
        True,
    ),
    "triangle": (
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
        True,
    ),
    "gather": (
        """
kernel gather(a: T[7*M], b: i64[N]) -> (o: T[N*M]):
  parallel i < N, j < M:
    %0 = load b[i]
    %1 = load a[M*(%0 < 7) + j]
    store o[M*i + j] %1""",
        "NM",
        ("C1", "C6"),
        ALL,
        {"b": Fill("ints", 0, 7)},
        True,
    ),
    "gather-narrow-index": (
        """
kernel gather(a: T[7], b: i32[N]) -> (o: T[N]):
  parallel i < N:
    %0 = load b[i]
    %1 = load a[(%0 < 7)]
    store o[i] %1""",
        "N",
        ("C1", "C6"),
        NUMBERS,
        {"b": Fill("ints", 0, 7)},
        True,
    ),
    "checked": (
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
        {"b": Fill("ints", -7, 7), "t": ZERO},
        True,
    ),
    "checked-and-wrong": (
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
        {"a": SAME, "b": Fill("ints", 6, 8), "t": ZERO},
        True,
    ),
    "checked-below": (
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
        {"a": SAME, "b": Fill("ints", -1026, -1025), "t": ZERO},
        False,
    ),
    "checked-and-masked": (
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
        {"a": SAME, "b": Fill("ints", 1999, 2000), "t": ZERO},
        False,
    ),
    "scatter": (
        """
kernel scatter(a: T[N], b: i64[N]) -> (o: T[N]):
  parallel i < N:
    %0 = load b[i]
    %1 = load a[i]
    store o[(%0 < N)] %1""",
        "N",
        ("C1", "C5", "C6"),
        NUMBERS,
        {"b": Fill("places")},
        True,
    ),
    "in-place": (
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
        True,
    ),
    "places-of-extremes": (
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
        {"a": Fill("ranked")},
        True,
    ),
    "several-results": (
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
        True,
    ),
    "folds-of-folds": (
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
        True,
    ),
    "store-in-a-fold": (
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
        True,
    ),
    "rows-and-columns": (
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
        True,
    ),
    "no-axes": (
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
        True,
    ),
    "matmul": (
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
        True,
    ),
}


def _atomics() -> Iterator[Form]:
    for mode in ("add", "min", "max", "mul"):
        fills = _fill("prod") if mode == "mul" else {}
        yield Form(
            f"atomic-{mode}",
            f"""
kernel atomic(a: T[N*M]) -> (o: inout T[M]):
  parallel i < N, j < M:
    %0 = load a[M*i + j]
    store {mode} o[j] %0""",
            "NM",
            ("C1", "C5", "C6"),
            NUMBERS,
            fills,
        )
        yield Form(
            f"atomic-{mode}-scattered",
            f"""
kernel atomic(a: T[N], b: i64[N]) -> (o: inout T[5]):
  parallel i < N:
    %0 = load a[i]
    %1 = load b[i]
    store {mode} o[(%1 < 5)] %0""",
            "N",
            ("C1", "C5", "C6"),
            ("f32", "f64", "i32", "i64"),
            {"b": Fill("ints", 0, 5), **fills},
        )


CONSTANTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(FLOATS, ("0.1", "-1.2345678912345678", "1e30", "-0.0", "inf", "-inf", "nan", "16777217.0")),
    "i64": ("1099511627777", "-4611686018427387905", "9223372036854775807", "-9223372036854775808", "255", "-1"),
    "i32": ("16777217", "2147483647", "-2147483648", "255", "-1"),
    "i16": ("32767", "-32768", "255"),
    "i8": ("127", "-128"),
    "u8": ("255", "128"),
    "b8": ("true", "false"),
}
"""What literals may lose digits, a sign or a bit of."""


def _constants() -> Iterator[Form]:
    """Each where flags say so; elsewhere what was given."""
    for dtype, values in CONSTANTS.items():
        lines = "".join(
            f"""
    %{3 * k} = load b[{len(values)}*i + {k}]
    %{3 * k + 1} = const {value} : T
    %{3 * k + 2} = where %{3 * k} %{3 * k + 1} %99
    store o[{len(values)}*i + {k}] %{3 * k + 2}"""
            for k, value in enumerate(values)
        )
        yield Form(
            f"constants-{dtype}",
            f"""
kernel constants(a: T[N], b: b8[{len(values)}*N]) -> (o: T[{len(values)}*N]):
  parallel i < N:
    %99 = load a[i]{lines}""",
            "N",
            ("C1", "C6"),
            (dtype,),
            {},
        )


LONG: Mapping[str, tuple[str, str, tuple[str, ...], tuple[str, ...], Mapping[str, Fill]]] = {
    "long-copy": (
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
    ),
    "long-turn": (
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
    ),
    "long-positions": (
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
        {"a": Fill("ints", 20_000, 30_000)},
    ),
    "long-places": (
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
    ),
    "long-folds": (
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
    ),
}
"""More elements than 65,536, or than 16 bits count, in all or along an axis."""
FORMS: Mapping[str, Form] = {f.name: f for f in forms()}


def made(form: Form, dtype: str, static: bool, first: int) -> Made:
    """The form at sizes that start at ``SIZES[first]``; a symbolic kernel has others at each call, and 0 among them."""

    def at(call: int) -> dict[str, int]:
        n = SIZES[(first + 7 * call) % len(SIZES)]
        m = SIZES[(first * 3 + 5 * call + 4) % len(SIZES)]
        while n * m > 1 << 14:
            n, m = max(n // 2, 1), m
        sizes = {"N": n, "M": m, "K": (3, 8, 5)[(first + call) % 3]}
        if form.letters == "M":
            sizes["M"] = n
        if call == 2 and form.empty and first % 2:
            sizes["NM"[first // 2 % 2] if len(form.letters) > 1 else form.letters] = 0
        return {s: sizes[s] for s in form.letters}

    sizes = tuple((form.sizes[0 if static else call] if form.sizes else at(0 if static else call)) for call in range(3))
    kernel = form.kernel(dtype, sizes[0] if static else None)
    welford = "welford" in form.name
    fills = {**form.fills, **({"a": Fill("within", 90, 110)} if welford else {})}
    return Made(kernel, sizes, fills, 0.0 if welford else None, welford)


def dtype_of(name: str) -> torch.dtype:
    return next(d for d, n in DTYPE_NAMES.items() if n == name)
