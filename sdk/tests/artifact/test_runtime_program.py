"""Programs for the C++ runtime: what they contain, and sentences for graphs that have none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, nn
from torch.export import export

import keel
from keel.artifact.runtime_calls import Calls
from keel.artifact.runtime_tables import Tables
from keel.packages.package_file import PackageFile
from keel.packages.package_manifest import opened
from keel.schedule.tensor_graph import Slot
from keel.serialize.codec import NotSerializable
from keel.types import SymType, TensorType

# PyTorch's own exporter uses what PyTorch deprecates.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]
aten = torch.ops.aten
s, u = sympy.Symbol("s", integer=True, positive=True), sympy.Symbol("u", integer=True)


def calls() -> Calls:
    return Calls(Tables(), {}, lambda number: 10 + number, lambda number: number == 0)


def test_equal_expressions_are_written_once() -> None:
    tables = Tables()
    first = tables.number(2 * s + 1, {"s": 0})
    assert tables.number(1 + 2 * s, {"s": 0}) == first
    assert tables.number(2 * s + 1, {"s": 1}) != first  # another part's symbol of that name
    assert all(
        isinstance(e[0], str) and all(a < k for a in e[1:]) for k, e in enumerate(tables.expressions) if len(e[0]) > 1
    )


@pytest.mark.parametrize(
    ("expr", "kind", "written"),
    [
        (3, "float", ["f", "0x1.8000000000000p+1"]),
        (True, None, ["b", 1]),
        (sympy.floor(s / 2), None, ["FloorDiv", 0, 1]),
        (s * (s + 1) / 2, None, ["FloorDiv", 3, 4]),
        (sympy.sqrt(s), None, ["OpaqueUnaryFn_sqrt", 0]),
        (s, "bool", ["to_bool", 0]),
    ],
)
def test_numbers_are_functions_of_earlier_ones(expr: Any, kind: Any, written: Any) -> None:
    tables = Tables()
    assert tables.expressions[tables.number(expr, {"s": 0}, kind)][0] == written[0]


def test_numbers_that_the_runtime_does_not_have() -> None:
    with pytest.raises(NotSerializable, match="No argument tells the size u before it is used"):
        Tables().number(u + 1, {"s": 0})
    with pytest.raises(NotSerializable, match="has more than 64 bits"):
        Tables().number(2**63, {})
    with pytest.raises(NotSerializable, match="no fractions of integers"):
        Tables().number(s + sympy.Rational(1, 2), {"s": 0})


def test_tensors_that_the_runtime_does_not_have() -> None:
    with pytest.raises(NotSerializable, match="no tensors on cuda:1"):
        Tables().type(TensorType.dense(torch.float32, (2,), "cuda:1"), {})
    with pytest.raises(NotSerializable, match="no tensors on meta"):
        Tables().type(TensorType.dense(torch.float32, (2,), "meta"), {})
    with pytest.raises(NotSerializable, match="no complex tensors"):
        Tables().type(TensorType.dense(torch.complex64, (2,)), {})


def test_an_operator_is_called_with_the_types_of_its_schema() -> None:
    call = calls().call(
        aten.convolution.default, (Slot(0), Slot(1), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), {}, [5]
    )
    types = [kind for kind, _ in call["args"]]
    assert types == ["Tensor", "Tensor", "Tensor?", "int[]", "int[]", "int[]", "bool", "int[]", "int"]
    assert [value for _, value in call["args"][:3]] == [10, 11, None]
    assert (call["name"], call["overload"], call["results"]) == ("aten::convolution", "", [5])


def test_a_number_may_stand_for_a_list_of_equal_ones() -> None:
    call = calls().call(aten.max_pool2d_with_indices.default, (Slot(0), 3), {}, [5, 6])
    assert len(call["args"][1][1]) == 2


def test_what_takes_a_scalar_has_a_c_function_or_is_refused() -> None:
    call = calls().call(aten.addmm.out, (Slot(0), Slot(1), Slot(2)), {"out": Slot(3)}, [])
    assert call["function"] == "aoti_torch_cpu_addmm_out"
    assert [value for _, value in call["args"][:4]] == [13, 10, 11, 12]
    with pytest.raises(NotSerializable, match=r"cannot call aten\.histc\.default: .* does not pass its min"):
        calls().call(aten.histc.default, (Slot(0),), {}, [5])
    subtracted = calls().call(aten.sub.Tensor, (Slot(0), Slot(1)), {"alpha": 2}, [5])
    assert subtracted["function"] == "aoti_torch_cpu_add_Tensor"
    assert calls().call(aten.sum.dim_IntList, (Slot(0), [0]), {"dtype": torch.float64}, [5])["args"][3][1] == "float64"


@pytest.mark.parametrize(
    ("function", "args", "why"),
    [
        (len, (), "cannot call len, which is not an operator"),
        (aten.mul.Tensor, (Slot(1), 2.5), r"cannot pass a float to aten\.mul\.Tensor with a tensor of integers"),
        (aten.bernoulli.default, (Slot(0), object()), "generator"),
    ],
)
def test_calls_that_are_refused(function: Callable[..., Any], args: tuple[Any, ...], why: str) -> None:
    kwargs = {"generator": args[1]} if function is aten.bernoulli.default else {}
    with pytest.raises(NotSerializable, match=why):
        calls().call(function, args[: 2 - len(kwargs)], kwargs, [5])


def test_a_number_in_the_place_of_a_tensor() -> None:
    call = calls().call(aten.mul.Tensor, (Slot(0), SymType(sympy.Integer(3))), {}, [5])
    assert [*call["args"][1][1]] == ["int"]


class Complex(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(x).real


class Chooses(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "why"), [(Complex(), "no complex tensors"), (Chooses(), "runs it in Python: higher_order.cond.default")]
)
def test_graphs_without_a_program_are_packaged_with_the_reason(tmp_path: Path, model: Any, why: str) -> None:
    keel.package(export(model, (torch.randn(8),)), tmp_path / "m.keel", backends=("cpp", "eager"))
    (variant,) = opened(tmp_path / "m.keel")[1].variants
    assert variant.program is None
    assert why in str(variant.why_no_program)


@pytest.mark.slow
def test_values_are_freed_after_their_last_use(tmp_path: Path) -> None:
    class Chain(nn.Module):
        def forward(self, x: Tensor) -> Any:
            y = x.sort(0).values  # a library's results
            return y.sort(1).values.exp(), x

    keel.package(export(Chain(), (torch.randn(4, 5),)), tmp_path / "m.keel", backends=("cpp",))
    file, manifest = opened(tmp_path / "m.keel")
    assert isinstance(file, PackageFile)
    data = json.loads(bytes(file.member(str(manifest.variants[0].program))))
    freed = [step[1] for step in data["steps"] if step[0] == "free"]
    assert freed
    assert len(freed) == len(set(freed))
    assert data["inputs"][0]["slot"] not in freed  # it is the caller's
