"""Type rules say what FakeTensor says: dtype, sizes and strides, of known sizes and of symbols."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import sympy
from torch import fx

from keel.graph.calls import call_of
from keel.spec import MEMBERS, Op, Sample, bind
from keel.spec.normal import overload_of
from keel.torch_adapter import bug_of, fake_mode_of, fix_strides
from keel.torch_adapter.meta_bugs.table import METAS
from keel.torch_adapter.trace import assignments
from keel.types import Call, SymType, TensorType

from .traced import traced

RULED = {name: op for name, op in MEMBERS.items() if op.out is not None and op.samples is not None and op.targets}

SHARES = 4
"""The first dtype of an operator has all samples, and each other one a quarter of them, which differs among four."""


def calls(op: Op, samples: list[Sample], symbolic: bool) -> Iterator[tuple[Call, Any]]:
    """The calls of the operator in one trace of it on all samples, each with the mode of its values."""

    def all_of_them(*each: Any) -> Any:
        return [overload_of(op, args, kwargs)(*args, **kwargs) for args, kwargs in each]

    gm = traced(all_of_them, *((s.args, dict(s.kwargs)) for s in samples), symbolic=symbolic)
    mode = fake_mode_of(gm)
    for node in gm.graph.nodes:
        if node.target not in op.targets:
            continue
        if bug_of(node.target) is not None:  # what FakeTensor is known to say wrongly
            args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), value_of)
            with mode:
                node.meta["val"] = fix_strides(node.target, args, kwargs, node.meta["val"])
        if (call := call_of(node)) is not None:
            yield call, mode


def value_of(arg: Any) -> Any:
    return arg.meta["val"] if isinstance(arg, fx.Node) else arg


def agrees(want: Any, got: Any, mode: Any = None) -> bool:
    """Whether types are equal: for all sizes, or for those that the guards of ``mode`` allow."""
    if isinstance(want, SymType):  # a number that only the run will tell
        return isinstance(got, SymType) and want.kind == got.kind and is_unknown(got.expr) and want.expr.is_Symbol
    if not isinstance(want, TensorType):
        return want == got
    return (
        isinstance(got, TensorType)
        and (want.dtype, want.device, want.rank) == (got.dtype, got.device, got.rank)
        and _equal((*want.shape, *_strides(want)), (*got.shape, *_strides(got)), mode)
    )


def is_unknown(d: Any) -> bool:
    return isinstance(d, sympy.Symbol) and d.name.startswith("?")


def _equal(a: tuple[Any, ...], b: tuple[Any, ...], mode: Any) -> bool:
    """Equal, or where sympy cannot tell (PyTorch has a FloorDiv of its own, and strides with Max(1, size)), equal at
    three draws of the symbols for which no size or stride is 0 or less.  They are larger than the numbers in samples,
    as the sizes are that are not cut to a bound there.
    """
    met = {y: x for x, y in zip(a, b, strict=True) if is_unknown(y)}
    b = tuple(sympy.sympify(v).subs(met) for v in b)
    if a == b:
        return True
    unsure = [sympy.Tuple(x, y) for x, y in zip(a, b, strict=True) if x != y]
    if all(t[0].is_number and t[1].is_number for t in unsure):
        return False
    symbols = sorted({s for v in (*a, *b) for s in sympy.sympify(v).free_symbols}, key=str)
    return _drawn_equal(a, unsure, symbols) or (
        mode is not None and all(x == y for at in assignments(mode, symbols) for x, y in (t.subs(at) for t in unsure))
    )


def _drawn_equal(a: tuple[Any, ...], unsure: list[Any], symbols: list[sympy.Symbol]) -> bool:
    draw, valid = random.Random(0), 0
    for _ in range(300):
        at = {s: draw.randint(20, 90) for s in symbols}
        if any(sympy.sympify(v).subs(at) < 1 for v in a if v != 0):
            continue
        if any(x != y for x, y in (t.subs(at) for t in unsure)):
            return False
        valid += 1
        if valid == 3:
            return True
    return False


def _strides(t: TensorType) -> tuple[Any, ...]:
    """Strides that matter: not those of sizes 0 and 1, nor any of an empty tensor."""
    if any(n == 0 for n in t.shape):
        return (0,) * t.rank
    return tuple(0 if n == 1 else s for n, s in zip(t.shape, t.strides, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
@pytest.mark.parametrize("name", RULED)
def test_rules_are_fake_tensors(name: str, symbolic: bool) -> None:
    op, seen = RULED[name], 0
    if symbolic and op.targets[0] in METAS:
        pytest.skip("PyTorch has no meta kernel for it; test_linalg.py and test_random.py compare the rule with ours")
    symbolic = symbolic or "data-dependent" in op.tags  # sizes that depend on data need symbols
    for k, dtype in enumerate(op.dtypes[:1] if symbolic else op.dtypes):
        samples = list(op.samples(dtype))
        if k:
            samples = samples[k % SHARES :: SHARES] or samples
        for call, mode in calls(op, samples, symbolic):
            seen += 1
            got = op.types(bind(call))
            same = len(got) == len(call.out) and all(agrees(a, b, mode) for a, b in zip(call.out, got, strict=True))
            assert same, f"{call}; the rule says {got}"
    assert seen
