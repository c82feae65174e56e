"""Operators of lists give at each place what eager gives there, and are written out with symbolic sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel.spec import MEMBERS
from keel.spec.ops.foreach import family

from .decomposed import holds

aten = torch.ops.aten
OVERLOADS = [o for op in family.members.values() for o in op.overloads]
LISTS, NUMBERS = 2, (0.5, 1.25)
THREE = ("addcmul", "addcdiv")


def tensors(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Values within the domain of every function, one place with another size and rank."""
    return [(torch.rand(shape) * 0.75 + 0.2).to(dtype) for shape in ((3, 4), (5,))]


def given(name: str, overload: str) -> tuple[Any, ...]:
    lists = [tensors()] if overload in ("default", "Scalar", "ScalarList") else [tensors(), tensors()]
    lists = [tensors(), tensors()] if name == "lerp" or name == "copy" else lists
    lists = [tensors(), tensors(), tensors()] if name in THREE or (name, overload) == ("lerp", "List") else lists
    match overload:
        case "Tensor" if name in THREE:
            return *lists, torch.tensor(NUMBERS)
        case "Tensor":
            return lists[0], torch.tensor(NUMBERS[0])
        case "Scalar":
            return *lists, NUMBERS[0] if name not in ("norm", "powsum") else 3
        case "ScalarList":
            return *lists, list(NUMBERS)
        case "ScalarAndTensor":
            return 0.5, lists[0]
    if name == "mm":
        return [torch.randn(3, 4), torch.randn(5, 2)], [torch.randn(4, 2), torch.randn(2, 3)]
    return (*lists,)


@pytest.mark.slow
@pytest.mark.parametrize("overload", OVERLOADS)
def test_each_place_is_eagers(overload: str) -> None:
    torch.manual_seed(0)
    _, packet, end = overload.split(".")
    op = getattr(getattr(aten, packet, None), end, None)
    if op is None:
        pytest.skip(f"PyTorch {torch.__version__} has no {overload}")
    holds(op, *given(packet.removeprefix("_foreach_"), end))


def test_every_list_operator_of_this_pytorch_is_a_member() -> None:
    names = (n.removeprefix("aten::") for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::_foreach_"))
    functional = {
        f"aten.{n if '.' in n else n + '.default'}"
        for n in names
        if not n.partition(".")[0].endswith("_") and not n.endswith("out")
    }
    assert functional <= {o for op in MEMBERS.values() for o in op.overloads}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64])
def test_dtypes_are_promoted_at_each_place(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    mixed = [torch.ones(3, dtype=dtype), torch.rand(2, dtype=torch.float64)]
    holds(aten._foreach_mul.List, mixed, tensors_of(torch.float32, (3,), (2,)))
    holds(aten._foreach_add.Scalar, mixed, 2)
    holds(aten._foreach_add.List, mixed, mixed, alpha=3)


def tensors_of(dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.rand(s).to(dtype) for s in shapes]


@pytest.mark.slow
def test_a_compiled_optimizer_takes_the_steps_of_eager() -> None:
    from keel import closure

    torch.manual_seed(0)
    start, grads = torch.randn(7), torch.randn(3, 7)
    found = []
    ends: list[closure.Ending] = []

    def watch(captured: Any) -> closure.Ending:
        ends.append(closure.ending(captured))
        return ends[-1]

    for compiled in (False, True):
        p = torch.nn.Parameter(start.clone())
        optimizer = torch.optim.Adam([p], lr=0.1, foreach=True)
        torch.compiler.reset()
        step = torch.compile(optimizer.step, backend=closure.dynamo_backend(watch)) if compiled else optimizer.step
        for g in grads:
            p.grad = g.clone()
            step()
        found.append(p.detach())
    torch.testing.assert_close(found[1], found[0])
    assert ends and not any(end.outside for end in ends)
