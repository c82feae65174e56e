"""The C texts of drawn expressions, compiled: they compute what evaluation does."""

from __future__ import annotations

import ctypes
import math
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import sympy
from hypothesis import HealthCheck, Phase, given, settings
from torch.utils._sympy import functions as pytorch

from keel.errors import KeelError
from keel.symbols import C_PRELUDE, c_text, evaluate, kind_of

from .drawn import FLOATS, INTS, TRUTHS, M, N, U

SYMBOLS = ("n", "m", "u", "x")
TYPES = {"int": ("i64", ctypes.c_int64), "float": ("double", ctypes.c_double), "bool": ("int", ctypes.c_int)}
DRAWS = 300


def drawn() -> list[Any]:
    """Expressions that C has, many to one library, for a compiler takes long to start."""
    found: dict[Any, None] = {}

    @settings(
        max_examples=DRAWS,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(INTS | FLOATS | TRUTHS)
    def draw(expr: Any) -> None:
        if isinstance(expr, sympy.Basic) and not expr.has(pytorch.RoundDecimal):
            found[expr] = None

    draw()
    return list(found)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], ctypes.CDLL]:
    expressions = drawn()
    folder: Path = tmp_path_factory.mktemp("c")
    lines = [
        f"{TYPES[kind_of(e)][0]} f{k}(i64 n, i64 m, i64 u, double x) {{ return {c_text(e)}; }}"
        for k, e in enumerate(expressions)
    ]
    (folder / "all.c").write_text("\n".join([C_PRELUDE, *lines, ""]))
    subprocess.run(
        [
            "gcc",
            "-O1",
            "-std=gnu99",
            "-fwrapv",
            "-ffp-contract=off",
            "-shared",
            "-fPIC",
            "-o",
            str(folder / "all.so"),
            str(folder / "all.c"),
            "-lm",
        ],
        check=True,
        capture_output=True,
    )
    return expressions, ctypes.CDLL(str(folder / "all.so"))


@pytest.mark.slow
def test_compiled_texts_have_the_values_of_expressions(library: tuple[list[Any], ctypes.CDLL]) -> None:
    expressions, functions = library
    draw = random.Random(0)
    compared = 0
    for k, expr in enumerate(expressions):
        function = functions[f"f{k}"]
        function.restype = TYPES[kind_of(expr)][1]
        function.argtypes = [ctypes.c_int64] * 3 + [ctypes.c_double]
        for _ in range(10):
            values = {
                "n": draw.randint(1, 60),
                "m": draw.randint(1, 60),
                "u": draw.randint(-40, 40),
                "x": draw.uniform(-40, 40),
            }
            try:
                wanted = evaluate(expr, values)
            except (OverflowError, ValueError, ZeroDivisionError):
                continue
            if any(abs(evaluate(a, values)) > 2**52 for a in sympy.preorder_traversal(expr) if _is_number(a)):
                continue  # beyond int64, or what a double holds
            value = function(*(values[s] for s in SYMBOLS))
            compared += 1
            assert (
                math.isclose(value, wanted, rel_tol=1e-12, abs_tol=1e-300)
                if isinstance(wanted, float)
                else value == wanted
            ), (c_text(expr), values)
    assert compared > DRAWS


def _is_number(part: Any) -> bool:
    return isinstance(part, sympy.Expr) and not isinstance(part, sympy.Rational)


def test_what_c_has_not_is_refused() -> None:
    with pytest.raises(KeelError, match=r"no-lowering.*RoundDecimal"):
        c_text(pytorch.RoundDecimal(pytorch.ToFloat(N), 1))
    with pytest.raises(KeelError, match="bad-graph"):
        c_text(sympy.Symbol("n; exit(1)", integer=True) + U)
    with pytest.raises(KeelError, match=r"no-lowering.*fraction"):
        c_text(N + 2**U)
    assert c_text(pytorch.FloorDiv(U, 2**N)) == "size_div(u, size_pow(2, n))"
    assert c_text(sympy.floor(N * M / 4)) == "size_div((m * n), 4)"
