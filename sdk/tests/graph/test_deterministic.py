"""Memory that nobody has written to, under ``torch.use_deterministic_algorithms``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import keel

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    torch.compiler.reset()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def of(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.empty(x.shape[0], dtype=dtype)


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        f"empty {d}".replace("torch.", ""): of(d)
        for d in (
            torch.float32,
            torch.float16,
            torch.bool,
            torch.int64,
            torch.uint8,
            torch.complex64,
            torch.float8_e4m3fn,
        )
    },
    "empty_like": torch.empty_like,
    "empty_like of a transpose": lambda x: torch.empty_like(x.t()),
    "new_empty": lambda x: x.new_empty(3, x.shape[0]),
    "empty_strided": lambda x: torch.empty_strided((2, x.shape[0]), (1, 2)),
    "new_empty_strided": lambda x: x.new_empty_strided((2, 2), (2, 1)),
    "empty_permuted": lambda x: torch.empty_permuted((2, 3), (1, 0)),
    "resize": lambda x: aten.resize(x, [4, 4]),
    "resize to less": lambda x: aten.resize(x, [2]),
    "resize by a size": lambda x: aten.resize(x, [x.shape[0] + 1, x.shape[0] + 1]),
    "resize_as": lambda x: aten.resize_as(x, x.new_ones(5, 2)),
    "resize in place": lambda x: x.clone().resize_(3, 4),
    "arithmetic on it": lambda x: torch.nan_to_num(torch.empty(3, 2), nan=5.0) + x.sum(),
}


UNTRACED = ("resize", "resize to less", "resize_as")
"""Which PyTorch does not trace where sizes are symbols."""
CASES = [(name, dynamic) for name in PROGRAMS for dynamic in (False, True) if not dynamic or name not in UNTRACED]


@pytest.mark.slow
@pytest.mark.parametrize("backends", [["eager"], ["interp", "eager"]], ids="-".join)
@pytest.mark.parametrize(("name", "dynamic"), CASES, ids=[f"{n}-{'dynamic' if d else 'static'}" for n, d in CASES])
def test_fresh_memory_has_eagers_values(name: str, backends: list[str], dynamic: bool) -> None:
    program, x = PROGRAMS[name], torch.ones(3, 2)
    got, want = keel.compile(program, backends=backends, dynamic=dynamic)(x), program(x)
    assert got.dtype == want.dtype and got.stride() == want.stride()
    wide = torch.float32 if want.dtype == torch.float8_e4m3fn else want.dtype
    torch.testing.assert_close(got.to(wide), want.to(wide), rtol=0, atol=0, equal_nan=True)


def test_it_is_left_alone_where_eager_leaves_it() -> None:
    seen: list[str] = []

    def compile(gm: torch.fx.GraphModule) -> Callable[..., object]:
        seen.extend(str(n.target) for n in gm.graph.nodes)
        return gm.forward

    backend = keel.Backend(name="seen", device="*", supports=lambda call: None, compile=compile)
    was = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        keel.compile(lambda x: torch.empty(3) + x, backends=[backend])(torch.ones(3))
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = was
    assert seen and not any("fill" in target for target in seen)
