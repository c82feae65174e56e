"""A squeeze of a size that only a run tells: its rank is eager's, or the run says that it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import keel

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "all": lambda x: x[x > 2].squeeze() * 2,
    "one": lambda x: x[x > 2].squeeze(0) * 2,
    "some": lambda x: x[None, x > 2].squeeze((0, 1)) * 2,
    "matrix": lambda x: x.nonzero().squeeze(-1).squeeze() + 1,
}


@pytest.fixture(autouse=True)
def sizes_are_captured() -> Iterator[None]:
    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["interp", "eager"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_one_element_is_an_error_and_others_are_as_in_eager(program: Callable[[Tensor], Tensor], backend: str) -> None:
    compiled = keel.compile(program, backends=[backend], placement="order")
    for x in (torch.tensor([1.0, 3.0, 4.0]), torch.tensor([0.0, 0.0, 0.0]), torch.tensor([5.0, 3.0, 4.0])):
        torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match=r"squeeze\(\) of a tensor of .*it is 1 in this one"):
        compiled(torch.tensor([0.0, 0.0, 4.0]))


def test_a_size_that_is_known_to_be_larger_is_not_asserted() -> None:
    def program(x: Tensor) -> Tensor:
        chosen = x.nonzero().squeeze(-1)
        torch._check(chosen.size(0) > 1)
        return chosen.squeeze() + 1

    compiled = keel.compile(program, backends=["interp"], placement="order")
    assert compiled(torch.tensor([1.0, 3.0, 0.0])).tolist() == [1, 2]
    with pytest.raises(RuntimeError, match=r"(?s)^((?!squeeze\(\)).)*$"):
        compiled(torch.tensor([0.0, 3.0, 0.0]))
