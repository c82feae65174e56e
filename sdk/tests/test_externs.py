"""The externs are the overloads they are named after: each ``run`` is it, each ``out`` fills what it is given."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from keel import aten_externs, externs
from keel.externs import advice, why_without_loops
from keel.loops.builder import LoopDefinition
from keel.loops.lower import AFTER_LIBRARIES, lower
from keel.opset import MEMBERS
from keel.types import Call, TensorType

aten = torch.ops.aten
CPU = aten_externs("cpu")
X, B = torch.randn(4, 6), torch.randn(3, 4, 6)
FILLING = {
    "aten.mm.default": (X, torch.randn(6, 5)),
    "aten.bmm.default": (B, torch.randn(3, 6, 5)),
    "aten.addmm.default": (torch.randn(5), X, torch.randn(6, 5)),
    "aten.baddbmm.default": (torch.randn(3, 4, 5), B, torch.randn(3, 6, 5)),
    "aten.addmv.default": (torch.randn(4), X, torch.randn(6)),
    "aten.mv.default": (X, torch.randn(6)),
    "aten.dot.default": (torch.randn(7), torch.randn(7)),
}


def test_names_are_overloads() -> None:
    corrected = set(MEMBERS["convolution_backward"].overloads)
    for name in CPU.keys() - corrected:
        assert str(CPU[name].run) == name.replace("_conj.", "_conj_physical.")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_members_that_are_passed_over_have_no_extern(device: str) -> None:
    passed_over = [op for op in MEMBERS.values() if not externs._may_be_extern(op, device)]
    assert len(passed_over) > len(MEMBERS) / 2
    assert not [run for op in passed_over for run in op.targets if externs._extern(op, run, device, lambda call: None)]


def test_views_are_known_as_such() -> None:
    assert CPU["aten.view_as_real.default"].view and CPU["aten.slice.Tensor"].view
    assert not CPU["aten.sort.default"].view and not CPU["aten.mm.default"].view


def test_every_primitive_has_loops_or_an_extern() -> None:
    """All but those of the runtime: control flow, collectives, effects, numbers on the host."""
    runtime = {"control", "collective", "host", "effect"}
    names = {str(t) for op in MEMBERS.values() if op.kind == "primitive" and not op.tags & runtime for t in op.targets}
    assert names <= CPU.keys()


@pytest.mark.parametrize(("dtype", "loops"), [(torch.float32, True), (torch.complex64, False)])
def test_what_a_target_s_dtypes_lack_is_done_by_the_library(dtype: torch.dtype, loops: bool) -> None:
    x = TensorType.dense(dtype, (3,))
    call = Call(aten.flip.default, (x, [0]), {}, (x,))
    refuse = aten_externs("cpu", [torch.float32])["aten.flip.default"].refuse
    assert refuse is not None and (refuse(call) is not None) == loops


@pytest.mark.parametrize("name", sorted(map(str, AFTER_LIBRARIES)))
def test_contractions_are_left_to_libraries(name: str) -> None:
    x = TensorType.dense(torch.float32, (3, 3))
    call = Call(next(op for op in AFTER_LIBRARIES if str(op) == name), (x, x), {}, (x,))
    assert CPU[name].refuse is None or CPU[name].refuse(call) is None


@pytest.mark.parametrize("name", FILLING)
def test_out_forms_fill_any_dense_tensor(name: str) -> None:
    extern, args = CPU[name], FILLING[name]
    want = extern.run(*args)
    backwards = list(reversed(range(want.ndim)))
    for like in (torch.empty_like(want), torch.empty(want.shape[::-1]).permute(backwards)):
        assert extern.out is not None
        before = like.data_ptr()
        extern.out(*args, out=like)
        assert like.data_ptr() == before
        torch.testing.assert_close(like, want)


def test_every_out_form_is_tried() -> None:
    assert {n for n, e in CPU.items() if e.out is not None} == set(FILLING)


@pytest.mark.parametrize("name", ["aten.rand.default", "aten.bernoulli.p", "aten.randn_like.default"])
def test_random_numbers_are_eager_s(name: str) -> None:
    args = {"aten.rand.default": ([7],), "aten.bernoulli.p": (X, 0.3), "aten.randn_like.default": (X,)}[name]
    _, packet, overload = name.split(".")
    torch.manual_seed(1)
    want = getattr(getattr(aten, packet), overload)(*args)
    torch.manual_seed(1)
    assert torch.equal(CPU[name].run(*args), want)


@pytest.mark.parametrize(("size", "loops"), [((8, 8), True), ((9, 8), False)])
def test_what_has_loops_is_left_to_them(size: tuple[int, int], loops: bool) -> None:
    op = aten.upsample_nearest2d_backward.default
    call = Call(
        op,
        (TensorType.dense(torch.float32, (1, 1, *size)), list(size), [1, 1, 4, 4]),
        {},
        (TensorType.dense(torch.float32, (1, 1, 4, 4)),),
    )
    assert isinstance(lower(call), LoopDefinition) is loops
    refuse = CPU["aten.upsample_nearest2d_backward.default"].refuse
    assert refuse is not None and (refuse(call) is None) is not loops


def test_each_device_has_its_attention() -> None:
    assert "aten._scaled_dot_product_flash_attention_for_cpu.default" in CPU
    assert "aten._scaled_dot_product_efficient_attention.default" in aten_externs("cuda")
    assert "aten.mm.default" in aten_externs("privateuseone")


def test_what_is_said_to_be_a_call_of_blas_fills_what_it_is_given() -> None:
    x, y = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0, 6.0], [7.0, 8.0]])  # sums are exact
    vector = torch.tensor([3.0, 5.0])
    operands = {
        "mm": (x, y),
        "mv": (x, vector),
        "dot": (vector, vector),
        "addmm": (x, x, y),
        "addmv": (vector, x, vector),
        "bmm": (x[None], y[None]),
        "baddbmm": (x[None], x[None], y[None]),
    }
    for op in (op for op in MEMBERS.values() if op.blas):
        out = aten_externs("cpu")[next(str(t) for t in op.targets if str(t).endswith(".default"))].out
        expected = op.targets[0](*operands[op.name])
        filled = torch.empty_strided(expected.shape, [2 * s for s in expected.stride()])
        assert out is not None
        assert out(*operands[op.name], out=filled) is filled
        assert filled.equal(expected)


PAGE = Path(__file__).parents[2] / "docs" / "how" / "write-a-loop-backend.md"


def test_the_page_lists_the_primitives_without_loops() -> None:
    by_reason: dict[str, list[str]] = {}
    for op in MEMBERS.values():
        if why := why_without_loops(op):
            by_reason.setdefault(why, []).append(op.name)
    rows = [
        f"{why}\n{textwrap.indent(textwrap.fill(', '.join(names), 116), '    ')}" for why, names in by_reason.items()
    ]
    table = "\n".join(["```text", *rows, "```"])
    assert table in PAGE.read_text(), table
    assert "It has no lowering rule." not in by_reason and sum(map(len, by_reason.values())) == 109


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            Call(aten.sort.default, (TensorType.dense(torch.float32, (3,)),), {}, ()),
            "Add an extern for aten.sort.default.",
        ),
        (Call(aten._local_scalar_dense.default, (TensorType.dense(torch.float32, ()),), {}, ()), "on the host."),
        (Call(aten.gelu.default, (TensorType.dense(torch.float32, (3,)),), {}, ()), ""),
    ],
)
def test_a_target_without_loops_for_a_primitive_is_advised(call: Call, said: str) -> None:
    assert advice(call).endswith(said) and bool(advice(call)) == bool(said)
