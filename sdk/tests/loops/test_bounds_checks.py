"""Indices that are data: what a check gives and records, and that its written-out form does the same."""

from __future__ import annotations

import pytest
import torch

from keel.errors import KeelError
from keel.loops.bounds_checks import NEEDS, lower_checks
from keel.loops.interpret import interpret
from keel.loops.ir import Check, show, walk
from keel.loops.parser import parse
from keel.loops.scalar_ops import SCALARS
from keel.loops.verify import verify

HEAD = "kernel k(at: i64[5], on: b8[5], x: f32[s0], trouble: inout i64[2]) -> (out: f32[5]) where s0 >= 0:\n"
BODY = """  parallel i0 < 5:
    %0 = load at[i0]
    %1 = load on[i0]
    %2 = check trouble[1]: %0 < s0{form}
    %3 = load x[(%2 < s0)] if %1
    store out[i0] %3
"""
FORMS = ("", " wrap", " if %1", " wrap if %1")


def run(text, at, on, size, change=lambda kernel: kernel):
    """(what site 1 recorded, the result)"""
    kernel = change(parse(text))
    verify(kernel)
    trouble, out = torch.zeros(2, dtype=torch.int64), torch.full((5,), 9.0)
    interpret(kernel, [torch.tensor(at), torch.tensor(on), torch.arange(1.0, size + 1), trouble, out], {"s0": size})
    assert trouble[0] == 0
    return int(trouble[1]), out.tolist()


@pytest.mark.parametrize("form", FORMS)
def test_the_text_reads_back(form):
    kernel = parse(HEAD + BODY.format(form=form))
    assert parse(show(kernel)) == kernel
    (check,) = [s for s in walk(kernel.body) if isinstance(s, Check)]
    assert (check.site, check.wrap, check.mask) == (1, "wrap" in form, 1 if "if" in form else None)


@pytest.mark.parametrize("change", [lambda k: k, lower_checks], ids=["check", "written out"])
@pytest.mark.parametrize(
    ("form", "at", "on", "size", "recorded"),
    [
        ("", [0, 1, 2, 2, 0], [True] * 5, 3, 0),
        ("", [0, 3, 2, 2, 0], [True] * 5, 3, 4),  # an index is recorded as itself + 1
        ("", [0, -1, 2, 2, 0], [True] * 5, 3, -1),  # a negative one as itself
        (" wrap", [0, -1, -3, 2, 0], [True] * 5, 3, 0),
        (" wrap", [0, -4, 2, 2, 0], [True] * 5, 3, -4),
        (" if %1", [0, 7, 2, 2, 0], [True, False, True, True, True], 3, 0),  # nobody reads there
        (" if %1", [0, 7, 2, 2, 0], [True] * 5, 3, 8),
        (" wrap if %1", [9, -9, 0, 0, 0], [False] * 5, 0, 0),  # nothing to read, and nothing is read
    ],
)
def test_what_has_no_place_is_recorded(change, form, at, on, size, recorded):
    found, out = run(HEAD + BODY.format(form=form), at, on, size, change)
    assert found == recorded
    if not recorded:
        assert out == [0.0 if not o else float(i + 1 if i >= 0 else i + size + 1) for i, o in zip(at, on, strict=True)]


def test_every_op_of_the_written_out_form_is_needed():
    kernel = lower_checks(parse(HEAD + BODY.format(form=" wrap if %1")))
    assert {s.op for s in walk(kernel.body) if hasattr(s, "op")} == {op for op, _ in NEEDS} <= SCALARS.keys()
    assert not any(isinstance(s, Check) for s in walk(kernel.body))


def test_a_kernel_without_checks_stays():
    kernel = parse("kernel k(a: f32[2]) -> (o: f32[2]):\n  parallel i0 < 2:\n    %0 = load a[i0]\n    store o[i0] %0\n")
    assert lower_checks(kernel) is kernel


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("check trouble[1]: %1 < 3", "%1 is not of type i64."),
        ("check trouble[1]: %0 < 3 if %0", "the mask %0 is not bool."),
        ("check at[1]: %0 < 3\n    %9 = check trouble[0]: %0 < 3", "at is not an inout buffer of i64."),
        ("check trouble[2]: %0 < 3", "trouble has 2 sites."),
    ],
)
def test_the_verifier_says_what_is_wrong(line, why):
    text = HEAD.replace(" where s0 >= 0", "").replace("f32[s0]", "f32[3]") + BODY.replace("(%2 < s0)", "(%2 < 3)")
    kernel = parse(text.replace("check trouble[1]: %0 < s0{form}", line))
    with pytest.raises(KeelError, match="bad-graph") as raised:
        verify(kernel)
    assert why in str(raised.value)
