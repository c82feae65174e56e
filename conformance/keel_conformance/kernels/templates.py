"""All kernels written by hand: folds and scans of every monoid in every nest, atomics, constants, and the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from keel.loops import DTYPE_NAMES, MONOIDS

from .kernel_case import BufferFill, KernelCase
from .kernel_template import FLOATS, NUMBERS, KernelTemplate
from .moves import MOVES
from .nests import LONG, NESTS

SIZES = (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025)
"""Around vector and tile boundaries."""


def forms() -> Iterator[KernelTemplate]:
    yield from _folds()
    yield from _scans()
    yield from MOVES
    yield from NESTS
    yield from _atomics()
    yield from _constants()
    yield from LONG


LOOPS: Mapping[str, tuple[str, str]] = {
    # What is before the fold, and the index of the element; the fold's place in the output.
    "rows": ("parallel i < N:\n    reduce j < M:", "M*i + j"),
    "columns": ("parallel i < N:\n    reduce j < M:", "N*j + i"),
    "two-axes": ("parallel i < N:\n    reduce j < M, k < K:", "M*K*i + K*j + k"),
    "outer-and-inner": ("parallel i < N:\n    reduce j < M, k < K:", "N*K*j + K*i + k"),
}


def _folds() -> Iterator[KernelTemplate]:
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
        for nest, (loops, at) in LOOPS.items():
            letters = "NMK" if "K" in loops + at else "NM"
            text = _text("fold", "reduce", monoid, loops, at, "*".join(letters), "N", "i")
            yield KernelTemplate(f"fold-{monoid}-{nest}", text, letters, ("C1", "C3", "C6"), dtypes, _fill(monoid))
            if monoid in ("any", "all", "max", "min", "argmax", "argmin"):
                yield KernelTemplate(
                    f"fold-{monoid}-{nest}-alike",
                    text,
                    letters,
                    ("C1", "C3", "C6"),
                    dtypes,
                    {"a": BufferFill("alike")},
                    sizes=tuple({"N": n, "M": m, "K": 4} for n, m in ((3, 256), (17, 64), (2, 512))),
                )
        text = _text("fold", "reduce", monoid, "reduce j < M:", "j", "M", "1", "0")
        yield KernelTemplate(f"fold-{monoid}-whole", text, "M", ("C1", "C3", "C6"), dtypes, _fill(monoid))


def _state(monoid: str, indent: str, axis: str) -> tuple[str, str, tuple[str, ...]]:
    """Statements that make the state of one element, its values, and their dtypes."""
    if monoid == "welford":
        lines = f"{indent}%1 = const 0.0 : T\n{indent}%2 = const 1.0 : T\n"
        return lines, "%0 %1 %2", ("T", "T", "T")
    if monoid.startswith("arg"):
        return f"{indent}%1 = position {axis}\n", "%0 %1", ("T", "i64")
    return "", "%0", ("T",)


def _scans() -> Iterator[KernelTemplate]:
    for monoid in ("sum", "prod", "max", "min", "any", "all", "xor", "argmax", "argmin"):
        dtypes = ("b8",) if monoid in ("any", "all") else ("i32", "u8") if monoid == "xor" else NUMBERS
        for nest, at in (("rows", "M*i + j"), ("columns", "N*j + i")):
            text = _text("scanned", "scan", monoid, "parallel i < N:\n    scan j < M:", at, "N*M", "N*M", at)
            yield KernelTemplate(f"scan-{monoid}-{nest}", text, "NM", ("C7", "C1", "C6"), dtypes, _fill(monoid))


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


def _fill(monoid: str) -> Mapping[str, BufferFill]:
    kind = {"prod": "factors", "max": "ranked", "min": "ranked", "argmax": "ranked", "argmin": "ranked"}.get(monoid, "")
    return {"a": BufferFill(kind)} if kind else {}


def _atomics() -> Iterator[KernelTemplate]:
    for mode in ("add", "min", "max", "mul"):
        fills = _fill("prod") if mode == "mul" else {}
        yield KernelTemplate(
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
        yield KernelTemplate(
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
            {"b": BufferFill("ints", 0, 5), **fills},
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


def _constants() -> Iterator[KernelTemplate]:
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
        yield KernelTemplate(
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


FORMS: Mapping[str, KernelTemplate] = {f.name: f for f in forms()}


def made(form: KernelTemplate, dtype: str, static: bool, first: int) -> KernelCase:
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
    fills = {**form.fills, **({"a": BufferFill("within", 90, 110)} if welford else {})}
    return KernelCase(kernel, sizes, fills, 0.0 if welford else None, welford)


def dtype_of(name: str) -> torch.dtype:
    return next(d for d, n in DTYPE_NAMES.items() if n == name)
