"""Drawn programs that assert what only a run tells, kept and broken, on drawn backends and placements: each gives what
eager gives, or raises what eager raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import keel
from keel import Backend, Cost

from .assertions import trusting
from .line import takes

# Dynamo looks at the gradient of every tensor that it is given.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
LENGTH = 6


def _sliced(x: Tensor, w: Tensor) -> Tensor:
    n = x.sum().int().item()
    torch._check(n >= 0)
    torch._check(n <= w.shape[0])
    return w[:n]


MAKERS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "places": lambda x, w: x.nonzero()[:, 0].float(),
    "mask": lambda x, w: (x * w)[x > 0],
    "select": lambda x, w: torch.masked_select(w, x > 0),
    "distinct": lambda x, w: torch.unique(x.cumsum(0)),
    "repeat": lambda x, w: torch.repeat_interleave(x.long()).float(),
    "slice": _sliced,
}
"""As many numbers as ``x`` has ones (one more in ``distinct``, if it begins with a zero)."""


def _four(a: Tensor, b: Tensor) -> None:
    torch._check(a.size(0) == 4)


def _few(a: Tensor, b: Tensor) -> None:
    torch._check(a.size(0) <= 4)


def _as_many(a: Tensor, b: Tensor) -> None:
    torch._check(a.size(0) == b.size(0))


def _positive(a: Tensor, b: Tensor) -> None:
    torch._assert_async((b.sum() < 12.0), "The sum is small.")


CHECKS: Mapping[str, Callable[[Tensor, Tensor], None]] = {
    "four": _four,
    "few": _few,
    "as many": _as_many,
    "values": _positive,
}


def _square(a: Tensor, b: Tensor) -> Tensor:
    return (a[:, None] * a[None, :]).sum(0) * 2


def _read(a: Tensor, b: Tensor) -> Tensor:
    return torch.arange(100.0)[a.long()] + a


USES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "map": lambda a, b: a * 2 + 1,
    "fold": lambda a, b: (a * a).sum() + a,
    "square": _square,
    "read": _read,
}


@dataclass(frozen=True)
class Drawn:
    """A program: how two vectors are made, what is asserted of them, and what is done with the first, before that or
    after it.
    """

    makers: tuple[str, str]
    check: str
    before: str | None
    after: str
    train: bool = False

    def __call__(self, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        a, b = MAKERS[self.makers[0]](x, w), MAKERS[self.makers[1]](y, w)
        early = None if self.before is None else USES[self.before](a, b).sum()
        CHECKS[self.check](a, b)
        late = USES[self.after](a, b)
        if self.check == "as many":
            late = late + b
        result = late.sum() if early is None else late.sum() * early
        return result * w.sum() if self.train else result


SHEET = Cost(flops={torch.float32: 1e9}, scalars=1e9, bandwidth=1e10, launch=1e-6)
PLACEMENTS: Mapping[str, Callable[[list[str]], dict[str, Any]]] = {
    "cpp": lambda broken: {"backends": ["cpp"]},
    "interp": lambda broken: {"backends": ["interp"]},
    "trusting": lambda broken: {"backends": [trusting(broken)]},
    "mixed": lambda broken: {"backends": [takes("nonzero", "index", "mul", "slice"), trusting(broken)]},
    "pinned": lambda broken: {"backends": [trusting(broken), "cpp"], "pins": {"mul": "cpp", "nonzero": "cpp"}},
    "cost": lambda broken: {"backends": ["cpp", _priced(trusting(broken))], "placement": "cost"},
    "measured": lambda broken: {"backends": ["cpp", _priced(trusting(broken))], "placement": "measured"},
}


def _priced(backend: Backend) -> Backend:
    return replace(backend, cost=SHEET)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def outcome(fn: Callable[..., Tensor], train: bool, x: Tensor, y: Tensor) -> tuple[Tensor, ...] | type[Exception]:
    """The result, and the gradient; or what is raised."""
    w = torch.arange(1.0, LENGTH + 1).requires_grad_(train)
    try:
        result = fn(x, y, w)
        if not train:
            return (result,)
        result.backward()
    except Exception as raised:
        return type(raised)
    assert w.grad is not None
    return result.detach(), w.grad


def right(program: Drawn, placement: str, inputs: list[tuple[Tensor, Tensor]]) -> None:
    """Raises AssertionError where a compiled program does other than eager, or a backend meets a value that does not
    have its type.
    """
    torch.compiler.reset()
    broken: list[str] = []

    def fn(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return program(x, y, w)

    compiled = keel.compile(fn, fullgraph=True, **PLACEMENTS[placement](broken))
    for x, y in inputs:
        want, got = outcome(fn, program.train, x, y), outcome(compiled, program.train, x, y)
        if isinstance(want, tuple):
            assert isinstance(got, tuple), f"{program} raises {got} on {placement} of {x}, {y}"
            torch.testing.assert_close(got, want)
        else:
            assert isinstance(got, type) and issubclass(got, want), f"{program} gives {got} on {placement} of {x}, {y}"
    assert not broken


def bits(count: int, zeros_first: bool) -> Tensor:
    """A vector with the given number of ones."""
    x = (torch.arange(LENGTH) < count).float()
    return x.flip(0) if zeros_first else x


vectors = st.builds(bits, st.integers(0, LENGTH), st.booleans())
programs = st.builds(
    Drawn,
    st.tuples(st.sampled_from([*MAKERS]), st.sampled_from([*MAKERS])),
    st.sampled_from([*CHECKS]),
    st.sampled_from([None, *USES]),
    st.sampled_from([*USES]),
    st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
@given(programs, st.sampled_from([*PLACEMENTS]), st.lists(st.tuples(vectors, vectors), min_size=2, max_size=4))
def test_drawn_programs_do_what_eager_does(program: Drawn, placement: str, inputs: list[tuple[Tensor, Tensor]]) -> None:
    four = bits(4, False)  # what keeps most, and what breaks it
    right(program, placement, [(four, four), (bits(6, False), bits(5, True)), *inputs])
