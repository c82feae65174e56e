"""Nothing is without cases in silence, and no reason is given where PyTorch could be called."""

from __future__ import annotations

import pytest
import torch

from keel.opset import MEMBERS
from keel_conformance.cases.clause_matrix import reason_of
from keel_conformance.cases.domains import domain_of
from keel_conformance.cases.exclusions import why_excluded
from keel_conformance.programs import PROGRAMS

EXEMPT = {name: reason for name, op in MEMBERS.items() if (reason := why_excluded(op)) is not None}


@pytest.mark.parametrize("part", range(4))
def test_each_member_has_cases_or_a_reason(part: int) -> None:
    for name in list(MEMBERS)[part::4]:
        op = MEMBERS[name]
        assert why_excluded(op) is not None or not op.targets or domain_of(name) is not None, name


@pytest.mark.parametrize("name", [name for name, op in MEMBERS.items() if op.cpu != ""])
def test_what_is_said_to_have_no_kernel_has_none(name: str) -> None:
    """From the release on that a reason names, there is one."""
    has = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    here = {s.partition(".")[0] for s in torch._C._dispatch_get_all_op_names()}
    found = []
    for target in (t for t in MEMBERS[name].targets if t.namespace == "aten"):
        written = f"{target._schema.name}_"  # by which PyTorch computes it, if there is such
        found.append(has(written if written in here else target._schema.name, "CPU"))
    since = MEMBERS[name].cpu
    assert any(found) == (since is not None and release(torch.__version__) >= release(since)), EXEMPT[name]


def release(text: str) -> tuple[int, ...]:
    """Of 2.14.1+cpu, 2 and 14."""
    return tuple(map(int, text.split(".")[:2]))


def test_a_reason_is_of_a_member_and_ends_as_a_sentence() -> None:
    for name, reason in EXEMPT.items():
        assert reason.endswith(".") and domain_of(name) is None
        assert all(reason_of(name, f"{name}.C{k}") == reason for k in range(1, len(MEMBERS[name].clauses) + 1))


def test_programs_that_reasons_speak_of_are_there() -> None:
    for part in ("errors-assertion-on-values", "collectives-all-reduce", "control-branch", "control-attention"):
        assert [name for name in PROGRAMS if name.startswith(part)]
