"""Whatever relies on an assertion waits for it, on every backend and placement: programs that break one raise what
eager raises, and no backend meets a value that does not have the type it was promised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import keel
from keel import Backend
from keel.discovery import resolve
from keel.refusals import refusal
from keel.types import Call, SymType, TensorType

from .assertions import PROGRAMS, Inputs, Program, trusting
from .releases import asserts_floats, exports_flags, skip_without

pytestmark = pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def outcome(fn: Any, inputs: Inputs) -> Tensor | type[Exception]:
    try:
        result: Tensor = fn(*(x.clone() for x in inputs))
    except Exception as raised:
        return type(raised)
    return result


def holds(program: Program, backends: Sequence[str | Backend], **options: Any) -> None:
    """Twice each way, since the first call of a part is checked and later ones are not."""
    compiled = keel.compile(program.fn, backends=backends, fullgraph=True, placement="order", **options)
    for inputs in (program.kept, program.broken) * 2:
        want, got = outcome(program.fn, inputs), outcome(compiled, inputs)
        if isinstance(want, Tensor):
            assert isinstance(got, Tensor)
            torch.testing.assert_close(got, want)
        else:
            assert isinstance(got, type) and issubclass(got, want)


OF_FLOATS = {"real"}


@pytest.mark.slow
@pytest.mark.parametrize("backends", [["cpp"], ["interp"]], ids="-".join)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_broken_assertion_raises_what_eager_raises(name: str, backends: list[str]) -> None:
    if name in OF_FLOATS:
        skip_without(asserts_floats)
    holds(PROGRAMS[name], backends)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_compiler_meets_a_value_of_another_type_than_promised(name: str) -> None:
    if name in OF_FLOATS:
        skip_without(asserts_floats)
    broken: list[str] = []
    holds(PROGRAMS[name], [trusting(broken)])
    assert not broken


class _Model(nn.Module):
    def __init__(self, fn: Callable[..., Tensor]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.fn(*inputs)


NOT_EXPORTED = {"in_a_loop", "of_the_users_operator"}
"""A loop that torch.export refuses, and an operator that no opset has."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in NOT_EXPORTED])
def test_an_exported_program_keeps_its_assertions(name: str, tmp_path: Path) -> None:
    """Compiled, and then saved, which shares its symbols; loaded, and compiled again."""
    if name in OF_FLOATS:
        skip_without(asserts_floats)
    if name == "truth":
        skip_without(exports_flags)
    program = PROGRAMS[name]
    exported = torch.export.export(_Model(program.fn), program.kept)
    compiled = keel.compile_exported(exported, backends=["cpp"])
    keel.serialize.save_graph(exported, file := tmp_path / "graph.keel")
    loaded = keel.serialize.load_graph(file)
    for run in (compiled, loaded, keel.compile(loaded, backends=["interp"], placement="order")):
        for inputs in (program.kept, program.broken) * 2:
            want, got = outcome(program.fn, inputs), outcome(run, inputs)
            if isinstance(want, Tensor):
                assert isinstance(got, Tensor)
                torch.testing.assert_close(got, want)
            else:
                assert isinstance(got, type) and issubclass(got, want)


@pytest.mark.parametrize("backend", ["cpp", "interp", "inductor"])
def test_compilers_that_might_move_an_assertion_take_none(backend: str) -> None:
    """What is asserted of a size, a compiler would believe of the input that it is given."""
    found = resolve([backend])[0]
    for op in (torch.ops.aten._functional_assert_scalar.default, torch.ops.aten._functional_assert_async.msg):
        x = TensorType.dense(torch.float32, (4,), torch.device("cpu"))
        condition = SymType(True, "bool") if "scalar" in str(op) else x
        assert refusal(found, Call(op, (condition, "It holds.", x), {}, (x,))) is not None


def _branch(check: Callable[[Tensor], Any]) -> Callable[[Tensor, Tensor], Tensor]:
    def taken(x: Tensor) -> Tensor:
        check(x)
        return x.sin().sum()

    def fn(p: Tensor, x: Tensor) -> Tensor:
        result: Tensor = torch.cond(p, taken, lambda x: x.cos().sum(), (x,))
        return result

    return fn


@pytest.mark.slow
@pytest.mark.parametrize(
    "check",
    [
        lambda x: torch._check(x.nonzero().size(0) >= 2),
        lambda x: torch._check(x.sum().item() > 2),
        lambda x: torch._check(x.long().sum().item() == 3),
        lambda x: torch._assert_async(x.sum() > 2, "above two"),
        lambda x: torch._check(x.nonzero().size(0) == 2),
        lambda x: torch._check(torch.unique(x).numel() == 3),
        lambda x: torch._check(x[x > 0].numel() == 2),
        lambda x: torch._check(torch.masked_select(x, x > 0).size(0) == 2),
    ],
    ids=["bound", "number", "equal number", "tensor", "equal size", "unique", "mask", "selected"],
)
def test_a_branch_keeps_assertions_on_what_it_does_not_use(check: Callable[[Tensor], Any]) -> None:
    fn, kept, broken = _branch(check), torch.tensor([1.0, 2.0, 0.0]), torch.tensor([1.0, 0.0, 0.0])
    compiled = keel.compile(fn, backends=["cpp", "eager"])
    yes, no = torch.tensor(True), torch.tensor(False)
    with torch.no_grad():
        assert torch.allclose(compiled(yes, kept), kept.sin().sum())
        assert torch.allclose(compiled(no, broken), broken.cos().sum())
        with pytest.raises(RuntimeError):
            compiled(yes, broken)


@pytest.mark.slow
def test_what_a_branch_reads_waits_for_its_assertions_in_training_too() -> None:
    def taken(x: Tensor) -> Tensor:
        n = x.nonzero()
        torch._check(n.size(0) == 2)
        return (x[:2] * n[:, 0]).sum()

    def fn(p: Tensor, x: Tensor) -> Tensor:
        result: Tensor = torch.cond(p, taken, lambda x: x.cos().sum(), (x,))
        return result

    compiled, yes = keel.compile(fn, backends=["cpp", "eager"]), torch.tensor(True)
    x = torch.tensor([1.0, 2.0, 0.0], requires_grad=True)
    compiled(yes, x).backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 1.0, 0.0]
    with pytest.raises(RuntimeError):  # sizes 1 and 2 would broadcast
        compiled(yes, torch.tensor([1.0, 0.0, 0.0], requires_grad=True))
