"""Support as data: which calls a table takes, and the sentence for each that it does not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from keel.errors import KeelError, KeelWarning
from keel.plugin import Backend, CompileContext, Refusal, Rule, Staged, Support, with_context
from keel.refusals import refusal
from keel.types import Call, SymType, TensorType, symbol

aten = torch.ops.aten
F32, F16, F64, I64 = torch.float32, torch.float16, torch.float64, torch.int64


def tensor(*shape: Any, dtype: torch.dtype = F32, device: str = "cpu") -> TensorType:
    return TensorType.dense(dtype, shape, device)


def mm(a: TensorType, b: TensorType) -> Call:
    return Call(aten.mm.default, (a, b), {}, (tensor(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device.type),))


def acme(*rules: Rule, device: str = "cpu") -> Backend:
    return Backend(name="acme", device=device, supports=Support(rules), compile=lambda gm: gm.forward)


SQUARE = mm(tensor(4, 4), tensor(4, 4))
COLUMNS = TensorType(F32, (4, 4), (1, 4), torch.device("cpu"))
MM = "aten.mm.default"


@pytest.mark.parametrize("ops", [("aten.mm.default",), ("aten.mm",), ("*",), ("aten.add", "aten.mm")])
def test_a_row_names_a_call_by_overload_packet_or_star(ops: tuple[str, ...]) -> None:
    assert refusal(acme(Rule(ops=ops)), SQUARE) is None


@pytest.mark.parametrize(("op", "family"), [(aten.relu.default, "pointwise"), (aten.view.default, "view")])
def test_a_row_names_a_call_by_family(op: Callable[..., Any], family: str) -> None:
    call = Call(op, (tensor(4),), {}, (tensor(4),))
    assert refusal(acme(Rule(ops=(family,))), call) is None
    assert refusal(acme(Rule(ops=(family,))), SQUARE) == Refusal("acme has no aten.mm.default.")


@pytest.mark.parametrize(
    ("rule", "call", "text"),
    [
        (Rule(ops=("aten.add.Tensor",)), SQUARE, "acme has no aten.mm.default."),
        (Rule(ops=("aten.mm.dtype",)), SQUARE, "acme has no aten.mm.default. It would take aten.mm.dtype."),
        (
            Rule(ops=(MM,), dtypes=frozenset({F64, I64, F32})),
            mm(tensor(4, 4, dtype=F16), tensor(4, 4, dtype=F16)),
            "acme has no aten.mm.default on float16. It would take a cast to float32 or float64 or int64.",
        ),
        (
            Rule(ops=("aten.full",), dtypes=frozenset({F32})),
            Call(aten.full.default, ((4,), 1.0), {"dtype": F64}, (tensor(4, dtype=F64),)),
            "acme has no aten.full.default on float64. It would take a cast to float32.",
        ),
        (
            Rule(ops=("*",), results=frozenset({F32})),
            Call(aten.argmax.default, (tensor(4),), {}, (tensor(dtype=I64),)),
            "acme has no aten.argmax.default with a result of int64. It would take a result of float32.",
        ),
        (
            Rule(ops=("aten.relu",), ranks=(2, 2)),
            Call(aten.relu.default, (tensor(2, 3, 4),), {}, (tensor(2, 3, 4),)),
            "acme takes aten.relu.default at rank 2, not at rank 3. It would take f32[2, 3, 4] reshaped to rank 2.",
        ),
        (
            Rule(ops=("aten.relu",), ranks=(1, 4)),
            Call(aten.relu.default, (tensor(),), {}, (tensor(),)),
            "acme takes aten.relu.default at rank 1 to 4, not at rank 0. It would take f32[] reshaped to rank 1.",
        ),
        (
            Rule(ops=(MM,), contiguous=True),
            mm(tensor(4, 4), COLUMNS),
            "acme takes aten.mm.default on contiguous tensors, not on f32[4, 4]{1, 4}. It would take a "
            "contiguous copy.",
        ),
        (
            Rule(ops=(MM,), static=True),
            mm(tensor(symbol("s0"), 4), tensor(4, 4)),
            "acme takes aten.mm.default at known sizes only, not on f32[s0, 4]. "
            "It would take sizes that are marked static, as by dynamic=False, or padded to one size.",
        ),
        (
            Rule(ops=("aten.nonzero",), static=True),
            Call(aten.nonzero.default, (tensor(4),), {}, (tensor(symbol("u0"), 1),)),
            "acme takes aten.nonzero.default at known sizes only, not with a result of f32[u0, 1]. "
            "It would take sizes that are marked static, as by dynamic=False, or padded to one size.",
        ),
        (
            Rule(ops=("aten.full",), static=True),
            Call(aten.full.default, ([SymType(symbol("s0"))], 1.0), {}, ()),
            "acme takes aten.full.default at known sizes only, not with the number s0. "
            "It would take sizes that are marked static, as by dynamic=False, or padded to one size.",
        ),
        (
            Rule(ops=("aten.add",), one_dtype=True),
            Call(aten.add.Tensor, (tensor(4), tensor(4, dtype=I64)), {}, (tensor(4),)),
            "acme takes aten.add.Tensor on tensors of one dtype, not on float32 and int64. "
            "It would take a cast of each to one of these.",
        ),
        (
            Rule(ops=("aten.add",), one_dtype=True),
            Call(aten.add.Tensor, (tensor(4, dtype=I64), 0.5), {}, (tensor(4),)),
            "acme takes aten.add.Tensor on operands of one dtype, not on int64 and 0.5. "
            "It would take a cast to a floating-point dtype.",
        ),
        (
            Rule(ops=("aten.relu",), nonempty=True),
            Call(aten.relu.default, (tensor(0, 4),), {}, (tensor(0, 4),)),
            "acme takes aten.relu.default on tensors with elements, not on f32[0, 4].",
        ),
        (
            Rule(ops=("aten.full",), nonempty=True),
            Call(aten.full.default, ((0,), 1.0), {}, (tensor(0),)),
            "acme takes aten.full.default on tensors with elements, not on f32[0].",
        ),
        (
            Rule(ops=("aten.add",), optional=()),
            Call(aten.add.Tensor, (tensor(4), tensor(4)), {"alpha": 2}, (tensor(4),)),
            "acme takes aten.add.Tensor without alpha=2. It would take alpha=1.",
        ),
        (
            Rule(ops=("aten.sum",), optional=("keepdim",)),
            Call(aten.sum.dim_IntList, (tensor(4), [0], True), {"dtype": F64}, (tensor(1, dtype=F64),)),
            "acme takes aten.sum.dim_IntList without dtype=torch.float64. It would take dtype=None.",
        ),
        (
            Rule(ops=(MM,), when=lambda call: "acme multiplies matrices of 32 rows and more."),
            SQUARE,
            "acme multiplies matrices of 32 rows and more.",
        ),
        (
            Rule(ops=(MM,), when=lambda call: Refusal("acme wants multiples of 8.", "padding to 8")),
            SQUARE,
            "acme wants multiples of 8. It would take padding to 8.",
        ),
    ],
    ids=[
        "op",
        "overload",
        "dtype",
        "dtype of a factory",
        "result",
        "rank",
        "ranks",
        "contiguous",
        "static",
        "static result",
        "static number",
        "one dtype",
        "one dtype of a number",
        "nonempty",
        "nonempty factory",
        "optional",
        "another optional",
        "when",
        "when with the nearest",
    ],
)
def test_a_refusal_says_what_failed_and_what_would_be_taken(rule: Rule, call: Call, text: str) -> None:
    assert str(refusal(acme(rule), call)) == text


def test_what_satisfies_every_field_is_taken() -> None:
    rule = Rule(
        ops=(MM,),
        dtypes=frozenset({F32}),
        results=frozenset({F32}),
        ranks=(2, 2),
        contiguous=True,
        static=True,
        one_dtype=True,
        nonempty=True,
        optional=(),
        when=lambda call: None,
    )
    assert refusal(acme(rule), SQUARE) is None


@pytest.mark.parametrize(
    "call",
    [
        Call(aten.add.Tensor, (tensor(4), 0.5), {"alpha": 1}, (tensor(4),)),
        Call(aten.add.Tensor, (tensor(4, dtype=I64), 2), {}, (tensor(4, dtype=I64),)),
        Call(aten.full.default, ([4], 0.5), {"dtype": None}, (tensor(4),)),
        Call(aten.max_pool2d.default, (tensor(4, 4, 4), [2], [], [0, 0], 1, False), {}, (tensor(4, 2, 2),)),
    ],
    ids=["a float with floats", "an integer with integers", "no tensors", "defaults by position"],
)
def test_operands_that_are_not_promoted_and_defaults_are_taken(call: Call) -> None:
    assert refusal(acme(Rule(ops=("*",), one_dtype=True, optional=("padding",))), call) is None


def test_the_row_that_came_nearest_speaks() -> None:
    rules = (Rule(ops=(MM,), dtypes=frozenset({F16})), Rule(ops=(MM,), contiguous=True), Rule(ops=(MM,), ranks=(3, 3)))
    why = refusal(acme(*rules), mm(tensor(4, 4), COLUMNS))
    assert str(why).startswith("acme takes aten.mm.default on contiguous tensors")


def test_one_row_is_enough() -> None:
    rules = (Rule(ops=(MM,), dtypes=frozenset({F16})), Rule(ops=("aten.mm",), dtypes=frozenset({F32})))
    assert refusal(acme(*rules), SQUARE) is None


def test_a_backend_refuses_tensors_of_other_devices() -> None:
    call = Call(aten.relu.default, (tensor(4, device="meta"),), {}, (tensor(4, device="meta"),))
    assert refusal(acme(Rule(ops=("*",)), device="*"), call) is None
    assert refusal(acme(Rule(ops=("*",)), device="meta"), call) is None
    assert str(refusal(acme(Rule(ops=("*",))), call)) == (
        "acme works on cpu tensors, not on f32[4] on meta. It would take a copy on cpu."
    )
    assert str(refusal(acme(Rule(ops=("*",)), device="cuda"), SQUARE)) == (
        "acme works on cuda tensors, not on f32[4, 4] on cpu. It would take a copy on cuda."
    )


def test_a_factory_on_another_device_is_refused() -> None:
    call = Call(aten.full.default, ((4,), 1.0), {}, (tensor(4, device="meta"),))
    assert "works on cpu tensors" in str(refusal(acme(Rule(ops=("*",))), call))


def asking(supports: Callable[[Call], Any]) -> Backend:
    return Backend(name="acme", device="cpu", supports=supports, compile=lambda gm: gm.forward)


def test_supports_may_be_a_function() -> None:
    assert refusal(asking(lambda call: None), SQUARE) is None
    assert refusal(asking(lambda call: "acme is shut."), SQUARE) == Refusal("acme is shut.")
    assert refusal(asking(lambda call: Refusal("No.", "more")), SQUARE) == Refusal("No.", "more")


@pytest.mark.parametrize("answer", ["raises", "bool", "when"])
def test_a_hook_that_misbehaves_is_a_refusal_and_a_warning(answer: str, golden: Callable[..., None]) -> None:
    def raises(call: Call) -> str:
        raise KeyError("flux\ncapacitor")

    backend = {
        "raises": asking(raises),
        "bool": asking(lambda call: True),
        "when": acme(Rule(ops=("*",), when=raises)),
    }[answer]
    with pytest.warns(KeelWarning, match="refuse-raised"):
        assert str(refusal(backend, SQUARE)).startswith("acme raised ")
    with pytest.raises(KeelError) as caught:
        refusal(backend, SQUARE, strict=True)
    assert caught.value.code == "refuse-raised"
    golden(str(caught.value))


def context_of(gm: Any, ctx: CompileContext | None = None) -> CompileContext | None:
    return ctx


@functools.wraps(context_of)
def of_the_graph_alone(gm: Any) -> None:
    return None


@functools.wraps(context_of)
def passing_all(*args: Any, **kwargs: Any) -> Any:
    return context_of(*args, **kwargs)


@pytest.mark.parametrize(
    ("function", "is_given"),
    [
        (context_of, True),
        (lambda gm, *, ctx: ctx, True),
        (lambda gm, ctx: ctx, True),
        (functools.partial(lambda level, gm, ctx: ctx, 3), True),
        (passing_all, True),
        (of_the_graph_alone, False),
        (lambda gm: None, False),
        (lambda gm, level=None: level, False),
        (lambda gm, **more: more.get("ctx"), False),
    ],
)
def test_a_function_with_a_parameter_named_ctx_is_given_the_context(function: Any, is_given: bool) -> None:
    ctx = CompileContext()
    backend = Backend(name="acme", device="cpu", supports=lambda call: None, compile=function)
    assert (with_context(backend.compile, ctx)(None) is ctx) == is_given
    staged = Staged(lambda gm, ctx: lambda: with_context(function, ctx)(gm))
    assert (with_context(staged, ctx)(None) is ctx) == is_given
