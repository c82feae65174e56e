"""Every operator of PyTorch that a graph could hold is accounted for."""

from __future__ import annotations

from collections import Counter
from importlib import import_module

import pytest
import torch

from keel.cli import main
from keel.spec import MEMBERS, lookup
from keel.spec.accounted import MEANINGS, account, accounts
from keel.spec.excluded import EXCLUSIONS, exclusion_of
from keel.torch_adapter import operator_named

HERE = tuple(map(int, torch.__version__.split(".")[:2]))
LATE = (
    "torch._inductor.inductor_prims",
    "torch._inductor.compile_fx",
    "torch._dynamo._trace_wrapped_higher_order_op",
    "torch.distributed._functional_collectives",
    "torch._prims.rng_prims",
    "torch.nn.attention.flex_attention",
)
"""What registers operators of its own when it is imported."""


def test_nothing_is_unknown() -> None:
    for room in LATE:
        import_module(room)
    unknown = [a.name for a in accounts() if a.how == "unknown"]
    assert not unknown


def test_each_way_has_a_meaning_and_is_taken() -> None:
    ways = Counter(a.how for a in accounts())
    assert set(ways) <= set(MEANINGS) and all(s.endswith(".") for s in MEANINGS.values())
    assert {"primitive", "composite", "opaque", "decomposed", "taken apart", "functionalized", "left out"} <= set(ways)
    assert sum(ways.values()) > 3000


def test_every_exclusion_has_its_reason_and_what_to_do_instead() -> None:
    names = [e.name for e in EXCLUSIONS]
    assert len(set(names)) == len(names)
    for e in EXCLUSIONS:
        assert e.reason.endswith(".") and e.do.endswith(".") and (e.operators or e.layouts or e.dtypes), e.name


@pytest.mark.skipif(HERE < (2, 13), reason="an older PyTorch lacks some of them")
def test_no_exclusion_of_operators_is_empty() -> None:
    used = {a.why for a in accounts() if a.how == "left out"}
    absent = {"named tensors", "communication that one library schedules"}  # gone from 2.13; registered when imported
    if HERE < (2, 14):
        absent |= {"operators newer than the opset"}
    assert {e.name for e in EXCLUSIONS if e.operators} - absent <= used


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("aten.sin.default", "primitive"),
        ("aten.relu.default", "composite"),
        ("aten.equal.default", "opaque"),
        ("aten.add_.Tensor", "functionalized"),
        ("aten.dist.default", "decomposed"),
        ("aten.linear.default", "taken apart"),
        ("prims.sin.default", "decomposed"),
        ("aten._to_sparse.default", "left out"),
        ("quantized.add.default", "left out"),
        ("aten._foreach_add.List", "composite"),
    ],
)
def test_accounts(name: str, how: str) -> None:
    if operator_named(name) is not None:
        assert account(name).how == how


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(LookupError, match="has no aten"):
        account("aten.no_such_thing.default")


def test_members_are_never_left_out() -> None:
    assert not [o for op in MEMBERS.values() for o in op.overloads if exclusion_of(o) is not None]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("aten._to_sparse", "left out of opset 1.0 .sparse layouts.: The number of its elements"),
        ("aten.dist.default", "table"),
        ("aten.linear", "dispatcher"),
        ("aten.add_.Tensor", "functional form"),
    ],
)
def test_asking_for_what_is_no_member_says_where_it_ends(name: str, words: str) -> None:
    with pytest.raises(lookup.KeelError, match=words):
        lookup.find(name)


def test_the_command_counts_and_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "overloads"]) == 0
    text = capsys.readouterr().out
    assert "None is unknown." in text and all(way in text for way in MEANINGS)
    assert main(["spec", "overloads", "--how", "opaque"]) == 0
    assert "aten.equal.default" in capsys.readouterr().out
    assert main(["spec", "overloads", "--how", "nohow"]) == 1
    assert "'nohow' is not a way to account for an overload" in capsys.readouterr().err
