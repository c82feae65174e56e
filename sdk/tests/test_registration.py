"""What a vendor writes is checked when it is made, and the error says what to write instead."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from keel import Backend, Cost, Extern, KeelError, Limits, LoopTarget, Refusal, Rule, Staged, Support
from keel.cost import Link, Pattern
from keel.loops import ByKind
from keel.plugin import CodeObject, KernelFunction
from keel.types import Call

FLOATS = {torch.float32: 1e9}


def takes_all(call: Call) -> None:
    return None


async def later(*_: object) -> None:
    return None


class Later:
    async def __call__(self, *_: object) -> None:
        return None


def backend(**more: Any) -> Backend:
    return Backend(**{"name": "acme", "device": "cpu", "supports": takes_all, "compile": lambda gm: gm.forward, **more})


def target(**more: Any) -> LoopTarget:
    return LoopTarget(
        **{
            "name": "acme",
            "device": "cpu",
            "dtypes": {torch.float32: "float"},
            "reductions": {},
            "scalars": {"add": "{0} + {1}"},
            "render": str,
            "build": list,
            **more,
        }
    )


def code(**more: Any) -> CodeObject:
    return CodeObject(**{"kind": "elf", "content": b"", "target": "acme1", "needs": (), "functions": (), **more})


def cost(**more: Any) -> Cost:
    return Cost(**{"flops": FLOATS, "scalars": 1e9, "bandwidth": 1e9, **more})


OPERATORS = {
    "aten.mm.defualt": "'aten.mm.default'",
    "aten.mmm": "'aten.mm'",
    "mm": "'aten.mm'",
    "torch.relu": "'aten.relu'",
    "aten::mm": "'aten.mm'",
    "torch.ops.aten.mm.default": "'aten.mm.default'",
    "atn.mm": "'aten.mm'",
    "aten. mm": "'aten.mm'",
    "aten.MM": "'aten.mm'",
    "pointwize": "'pointwise'",
    "aten.frobnicate": "PyTorch",
    "": "PyTorch",
    " ": "PyTorch",
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_that_does_not_exist(name: str) -> None:
    with pytest.raises(KeelError) as caught:
        Rule(ops=("aten.add.Tensor", name))
    assert caught.value.code == "bad-plugin" and repr(name) in caught.value.what
    assert OPERATORS[name] in (caught.value.do or "")


@pytest.mark.parametrize(
    "name",
    [
        "aten.mm.default",
        "aten.mm",
        "aten.add_",
        "pointwise",
        "view",
        "*",
        "core",
        "prims.sin",
        "higher_order.cond.default",
        "aten.sym_size.int",
        "acme.fused",
        "acme.fused.default",
        "torchvision.nms",
    ],
)
def test_an_operator_that_exists_or_may_be_registered_later(name: str) -> None:
    assert Rule(ops=(name,)).ops == (name,)


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "ops is a text": (lambda: Rule(ops="aten.mm"), "ops=('aten.mm',)"),  # type: ignore[arg-type]
    "ops is empty": (lambda: Rule(ops=()), "at least one"),
    "ops holds an operator": (lambda: Rule(ops=(torch.ops.aten.mm.default,)), "'aten.mm.default'"),  # type: ignore
    "ops is None": (lambda: Rule(ops=None), "tuple of texts"),  # type: ignore[arg-type]
    "ops is a dict": (lambda: Rule(ops={"aten.mm": 1}), "tuple of texts"),  # type: ignore[arg-type]
    "dtypes by name": (
        lambda: Rule(ops=("aten.mm",), dtypes=frozenset({"f32"})),  # type: ignore[arg-type]
        "torch.float32",
    ),
    "dtypes by a near name": (
        lambda: Rule(ops=("aten.mm",), dtypes=frozenset({"torch.floot64"})),  # type: ignore
        "torch.float64",
    ),
    "dtypes is one": (
        lambda: Rule(ops=("aten.mm",), dtypes=torch.float16),  # type: ignore[arg-type]
        "frozenset({torch.float16})",
    ),
    "dtypes is a text": (lambda: Rule(ops=("aten.mm",), dtypes="float32"), "frozenset"),  # type: ignore[arg-type]
    "dtypes is empty": (lambda: Rule(ops=("aten.mm",), dtypes=frozenset()), "leave it out"),
    "a dtype that graphs lack": (lambda: Rule(ops=("aten.mm",), results=frozenset({torch.quint8})), "Leave it out"),
    "ranks upside down": (lambda: Rule(ops=("aten.mm",), ranks=(3, 1)), "lowest and the highest"),
    "one rank": (lambda: Rule(ops=("aten.mm",), ranks=2), "ranks=(2, 2)"),  # type: ignore[arg-type]
    "when is not a function": (lambda: Rule(ops=("aten.mm",), when=True), "a function"),  # type: ignore[arg-type]
    "when is asynchronous": (lambda: Rule(ops=("aten.mm",), when=later), "plain function"),  # type: ignore[arg-type]
    "static is a text": (lambda: Rule(ops=("aten.mm",), static="no"), "static=True"),  # type: ignore[arg-type]
    "nonempty is a text": (lambda: Rule(ops=("aten.mm",), nonempty="no"), "nonempty=True"),  # type: ignore[arg-type]
    "optional is a text": (lambda: Rule(ops=("aten.add",), optional="alpha"), "('alpha',)"),  # type: ignore[arg-type]
    "no rows": (lambda: Support(()), "at least one"),
    "a row in place of rows": (lambda: Support(Rule(ops=("aten.mm",))), "the comma"),  # type: ignore[arg-type]
    "rows that are not rows": (lambda: Support(("aten.mm",)), "Rule values"),  # type: ignore[arg-type]
    "rows that are a text": (lambda: Support("aten.mm"), "Rule"),  # type: ignore[arg-type]
    "an empty refusal": (lambda: Refusal(" "), "return None"),
    "a refusal that is not a text": (lambda: Refusal(7), "a text"),  # type: ignore[arg-type]
    "a space in a name": (lambda: backend(name="acme npu"), "name='acme_npu'"),
    "a dot in a name": (lambda: backend(name="acme.npu"), "name='acme_npu'"),
    "a line in a name": (lambda: backend(name="acme\n"), "name='acme'"),
    "no name": (lambda: backend(name=""), "name='acme'"),
    "a name that is not a text": (lambda: backend(name=None), "letters"),
    "a device with a number": (lambda: backend(device="acme:0"), "device='acme'"),
    "a device in capitals": (lambda: backend(device="CUDA"), "device='cuda'"),
    "a device that is a value": (lambda: backend(device=torch.device("cuda:1")), "device='cuda'"),
    "no device": (lambda: backend(device=""), "device='cpu'"),
    "supports is rows": (lambda: backend(supports=(Rule(ops=("aten.mm",)),)), "Support((Rule(...),))"),
    "supports is a text": (lambda: backend(supports="aten.mm"), "a function"),
    "supports is asynchronous": (lambda: backend(supports=Later()), "plain function"),
    "supports takes nothing": (lambda: backend(supports=lambda: None), "it takes a Call"),
    "supports takes two": (lambda: backend(supports=lambda call, more: None), "it takes a Call"),
    "supports takes names only": (lambda: backend(supports=lambda *, call: None), "it takes a Call"),
    "compile takes nothing": (lambda: backend(compile=lambda: None), "it takes a graph"),
    "compile takes two": (lambda: backend(compile=lambda gm, device: None), "may take a CompileContext as ctx"),
    "compile takes three": (lambda: backend(compile=lambda gm, device, ctx: None), "it takes a graph"),
    "probe takes a device": (lambda: backend(probe=lambda device: None), "it returns None, or the sentence"),
    "when takes nothing": (lambda: Rule(ops=("aten.mm",), when=lambda: None), "it takes a Call"),  # type: ignore
    "begin takes nothing": (lambda: Staged(begin=lambda: None), "it takes a graph"),  # type: ignore
    "compile is not a function": (lambda: backend(compile=7), "a function"),
    "compile is asynchronous": (lambda: backend(compile=later), "plain function"),
    "begin is not a function": (lambda: Staged(begin=None), "a function"),  # type: ignore[arg-type]
    "warm_up takes a device": (lambda: backend(warm_up=lambda device: None), "it prepares what every graph needs"),
    "warm_up of a target is a name": (lambda: target(warm_up="launchers"), "a function"),
    "probe is an answer": (lambda: backend(probe=None), "a function"),
    "cost is a number": (lambda: backend(cost=1.0), "keel.Cost"),
    "last_resort is a text": (lambda: backend(last_resort="yes"), "last_resort=True"),
    "api is a text": (lambda: backend(api="2"), "api=2"),
    "no dtypes": (lambda: target(dtypes={}), "at least one row"),
    "dtypes by text": (lambda: target(dtypes={"f32": "float"}), "torch.float32"),
    "dtypes without texts": (lambda: target(dtypes={torch.float32: None}), "the target's language"),
    "any device": (lambda: target(device="*"), "device='cpu'"),
    "an unknown scalar op": (lambda: target(scalars={"addd": "+"}), "Did you mean 'add'?"),
    "a scalar op without a text": (lambda: target(scalars={"add": 1}), "the text of the op"),
    "an unknown monoid": (lambda: target(reductions={"summ": ("0", "+")}), "Did you mean 'sum'?"),
    "a monoid without a pair": (lambda: target(reductions={"sum": "0"}), "a pair of texts"),
    "a text for dtypes that an op does not take": (
        lambda: target(scalars={"not": ByKind(floating="!{0}")}),
        "integer and boolean",
    ),
    "a kind whose text is not a text": (lambda: target(scalars={"not": ByKind(integer=1)}), "the text of the op"),
    "kinds without a text": (lambda: target(scalars={"not": ByKind()}), "Leave not out"),
    "tables that are lists": (lambda: target(scalars=["add"]), "a dict by scalar op"),
    "empty tables": (lambda: target(scalars={}), "at least one of scalars"),
    "an extern by packet": (lambda: target(externs={"aten.mm": Extern(run=torch.mm)}), "'aten.mm.default'"),
    "an extern that is not an Extern": (lambda: target(externs={"aten.mm.default": torch.mm}), "keel.Extern"),
    "render is a text": (lambda: target(render="{0}"), "a function"),
    "a target without build": (lambda: target(build=None), "returns a launcher for each"),
    "compile of a target takes no machine": (
        lambda: target(compile=lambda sources: (), load=lambda objects, sources: []),
        "the name of a machine",
    ),
    "load takes no sources": (
        lambda: target(compile=lambda sources, machine: (), load=lambda objects: []),
        "the sources that they are of",
    ),
    "compile without load": (lambda: target(compile=lambda sources, machine: ()), "Write both"),
    "a code object of text": (lambda: code(content="mov"), "the bytes of the compiler's file"),
    "needs that are a text": (lambda: code(needs="avx2"), '(("cpu", "avx2"),)'),
    "needs without kinds": (lambda: code(needs=("avx2", "fma")), '(("cpu", "avx2"),)'),
    "functions that are names": (lambda: code(functions=("k",)), "KernelFunction"),
    "a position below zero": (lambda: KernelFunction(name="k", source=-1), "source=0"),
    "a launch that is a list": (lambda: KernelFunction(name="k", launch=[]), "a dict"),  # type: ignore[arg-type]
    "limits is a dict": (lambda: target(limits={}), "keel.Limits"),
    "a suffix with a path": (lambda: target(suffix="../c"), 'suffix="c"'),
    "run is not a function": (lambda: Extern(run=None), "a function"),  # type: ignore[arg-type]
    "out is not a function": (lambda: Extern(run=torch.mm, out="out"), "a function"),  # type: ignore[arg-type]
    "an unknown mode of stores": (lambda: Limits(atomics=frozenset({"sub"})), "Write one of"),
    "atomics is a text": (lambda: Limits(atomics="add"), "tuple"),  # type: ignore[arg-type]
    "a limit of nothing": (lambda: Limits(vector=0), "at least 1"),
    "a rate that is not a number": (lambda: cost(bandwidth=math.nan), "above 0"),
    "a rate below zero": (lambda: cost(scalars=-1.0), "above 0"),
    "a rate that is a text": (lambda: cost(scalars="1e9"), "above 0"),
    "a rate of nothing": (lambda: cost(flops={torch.float32: 0.0}), "above 0"),
    "rates by text": (lambda: cost(flops={"float32": 1e9}), "torch.float32"),
    "rates that are a number": (lambda: cost(flops=1e9), "a dict by torch.dtype"),
    "a rate beyond floats": (lambda: cost(scalars=10**400), "above 0"),
    "a rate beyond texts": (lambda: cost(scalars=10**5000), "above 0"),
    "a launch below zero": (lambda: cost(launch=-1e-6), "at least 0"),
    "seconds of an operator that does not exist": (lambda: cost(seconds={"aten.mn": 1.0}), "Did you mean 'aten.m"),
    "seconds that are a text": (lambda: cost(seconds={"aten.mm": "1 us"}), "at least 0"),
    "seconds by an asynchronous function": (lambda: cost(seconds={"aten.mm": later}), "plain function"),
    "weights of a kind that does not exist": (lambda: cost(weights={"convolutoin": 2.0}), "'convolution'"),
    "a link that is a number": (lambda: cost(link=1e9), "keel.cost.Link"),
    "a link without bandwidth": (lambda: Link(0.0, 1e-6), "above 0"),
    "doubt of all": (lambda: cost(doubt=1.0), "below 1"),
    "patterns that are texts": (lambda: cost(patterns=("aten.mm",)), "Pattern values"),
    "a pattern that is a text": (lambda: Pattern("aten.mm"), "('aten.mm',)"),  # type: ignore[arg-type]
    "a pattern of nothing": (lambda: Pattern(()), "at least one"),
    "a pattern of what does not exist": (lambda: Pattern(("aten.mm", "relu")), "'aten.relu'"),
    "a pattern that takes less than no time": (lambda: Pattern(("aten.mm",), -1.0), "at least 0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_with_what_to_write(mistake: str) -> None:
    make, instead = MISTAKES[mistake]
    with pytest.raises(KeelError) as caught:
        make()
    assert caught.value.code == "bad-plugin" and instead in (caught.value.do or ""), str(caught.value)


def test_lists_and_sets_become_what_the_fields_hold() -> None:
    rule = Rule(ops=["aten.mm"], dtypes={torch.float32}, ranks=[2, 3])  # type: ignore[arg-type]
    assert rule == Rule(ops=("aten.mm",), dtypes=frozenset({torch.float32}), ranks=(2, 3))
    assert hash(Support([rule])) == hash(Support((rule,)))  # type: ignore[arg-type]


def test_what_is_right_can_be_made_and_changed() -> None:
    made = backend(supports=Support((Rule(ops=("aten.mm",)),)), cost=cost(memory=math.inf, seconds={"aten.mm": 0.0}))
    assert replace(made, name="acme-2", device="*").name == "acme-2"
    assert target(externs={"aten.mm.default": Extern(run=torch.mm, out=torch.mm)}, scalars={}).suffix == "txt"
    assert cost(weights={"depthwise convolution backward": 2.0, "sort": 3}, flops={}).flops == {}


def test_a_target_with_compile_and_load_has_a_build() -> None:
    calls: list[Any] = []

    def compile(sources: list[str], machine: str | None) -> list[CodeObject]:
        calls.append((sources, machine))
        return [code()]

    def load(objects: list[CodeObject], sources: list[str], ctx: object = None) -> list[str]:
        return [f"{source} of {objects[0].target} {ctx}" for source in sources]

    made = target(build=None, compile=compile, load=load)
    assert made.build(["a"], ctx=7) == ["a of acme1 7"] and calls == [(["a"], None)]
    other = replace(made, load=lambda objects, sources: ["another"])
    assert other.build(["a"]) == ["another"], "a copy with another function"
    assert replace(made, build=list).build is list
