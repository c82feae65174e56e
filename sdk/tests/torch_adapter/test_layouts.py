"""Promised strides are those that eager gives: where PyTorch's fake kernels promise others, the fault is listed."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from keel.torch_adapter import Captured, capture
from keel.torch_adapter.lacking import METAS
from keel.torch_adapter.layouts import FAULTS, fault_of, laid_out

aten = torch.ops.aten
HERE = ".".join(torch.__version__.split(".")[:2])


def transforms(x: torch.Tensor, *rest: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    for y in (x, x.permute(1, 2, 0).contiguous().permute(2, 0, 1), x[:, ::2]):
        for n in (1, 2, 3):
            for dims in permutations(range(3), n):
                yield from ((y, list(dims), *more) for more in rest)


X, C = torch.randn(3, 4, 6), torch.randn(3, 4, 6, dtype=torch.complex64)
SWAPPED = torch.rand(6, 4).t()
CALLS: dict[Any, list[tuple[Any, ...]]] = {
    aten._fft_c2c.default: list(transforms(C, (0, True), (1, False))),
    aten._fft_r2c.default: list(transforms(X, (0, True), (2, False))),
    aten._fft_c2r.default: [(y, dims, 0, 2 * (y.shape[dims[-1]] - 1)) for y, dims in transforms(C, ())],
    aten.slice_scatter.default: [(SWAPPED, torch.zeros(4, 2), 1, 1, 3), (X[:, ::2, ::3], torch.zeros(3, 2, 1), 2, 0, 1),
                                 (torch.rand(4).expand(3, 4), torch.zeros(3, 2), 1, 0, 2)],
    aten._standard_gamma.default: [(SWAPPED,), (X,)],
    aten.poisson.default: [(SWAPPED,), (X.abs(),)],
    aten.copysign.Tensor: [(SWAPPED, torch.ones(4, 6)), (torch.ones(4, 6), SWAPPED), (X, X), (X, X[0])],
    aten.div.Tensor_mode: [(SWAPPED, torch.ones(4, 6)), (torch.ones(4, 6), SWAPPED), (X, X[0])],
    torch.ops.prims.device_put.default: [(SWAPPED, torch.device("cpu")), (X[:, ::2], torch.device("cpu"))],
}


@pytest.mark.parametrize("op", CALLS, ids=str)
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
def test_what_is_promised_is_what_eager_gives(op: Any, symbolic: bool) -> None:
    kwargs = {"rounding_mode": "floor"} if op is aten.div.Tensor_mode else {}
    for args in CALLS[op]:
        mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=not symbolic)
        fakes = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
        with enable_python_dispatcher(), mode:
            said = METAS[op](*fakes) if op in METAS else promised(op, fakes, kwargs)
            if said is None:
                continue
            said = laid_out(op, fakes, kwargs, said)
        given = op(*args, **kwargs)
        assert (said.shape, said.dtype) == (given.shape, given.dtype)
        assert steps(said) == steps(given), f"{[steps(a) for a in args if isinstance(a, torch.Tensor)]}, {args[1:]}"


@pytest.mark.parametrize("fault", [f for f in FAULTS if HERE in f.seen and f.ops[0].namespace == "aten"],
                         ids=lambda f: str(f.ops[0]))
def test_a_listed_fault_is_one(fault: Any) -> None:
    for op in fault.ops:
        assert fault_of(op) is fault and fault.sentence.endswith(".")
        kwargs = {"rounding_mode": "floor"} if op is aten.div.Tensor_mode else {}
        with FakeTensorMode() as mode:
            said = [promised(op, [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args], kwargs)
                    for args in CALLS[op]]
        assert any(s is None or steps(s) != steps(op(*args, **kwargs)) for s, args in zip(said, CALLS[op], strict=True))


def promised(op: Any, fakes: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """What the fake kernel says; None where it falls over its own strides, so that PyTorch traces no such call."""
    try:
        return op(*fakes, **kwargs)
    except RuntimeError as e:
        assert "out of bounds for storage" in str(e) and HERE in fault_of(op).seen
        return None


def test_other_devices() -> None:
    """On CUDA a transform of more than three dimensions, or of the first two, is done in stages."""
    with FakeTensorMode():
        x = torch.empty(2, 3, 1, 4, 2, dtype=torch.complex64, device="cuda")
        gaps = torch.empty_strided((2, 2, 1, 4, 2), (24, 16, 8, 2, 1), device="cuda")
        said = laid_out(aten._fft_c2c.default, (x, [0, 1, 3, 4], 0, True), {}, torch.empty_like(x))
        moved = laid_out(torch.ops.prims.device_put.default, (gaps, torch.device("cpu")), {},
                         torch.empty_strided(gaps.shape, gaps.stride()))
    assert said.stride() == (1, 16, 48, 4, 2)
    assert moved.stride() == (16, 8, 8, 2, 1)


def steps(t: torch.Tensor) -> list[int]:
    return [int(s) for n, s in zip(t.shape, t.stride(), strict=True) if n != 1]


# -- whole graphs -----------------------------------------------------------------------------------------------------

class Truthful(fx.Interpreter):
    """Runs a graph in eager and asserts that every operator gives the strides that its node promises."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op == "call_function" and isinstance(result, torch.Tensor):
            assert steps(result) == steps(n.meta["val"]), f"{n.target} gives {steps(result)}"
        return result


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a view of it": lambda x: torch.view_as_real(torch.fft.rfft(x, dim=1)),
    "reshaped, which copies": lambda x: torch.fft.rfft(x, dim=0).reshape(-1).abs(),
    "as the backend likes": lambda x: torch.fft.fftn(x * 1j, dim=(2, 0)).abs() + x,
    "into what is repeated": lambda x: torch.slice_scatter(x[:, 0, :1].expand(3, 4), x[:, 1:3, 0], 1, 0, 2) * 2,
    "signs": lambda x: torch.copysign(x.mT, x.new_ones(3, 6, 4)).flatten(1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    torch.compiler.reset()
    program = PROGRAMS[name]

    def compiler(graph: Captured) -> Callable[[list[Any]], Any]:
        return lambda inputs: Truthful(graph.gm).run(*inputs, *graph.constants.values())
    x, y = (torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2))
    want = program(x)
    got = torch.compile(program, backend=lambda gm, inputs: capture(gm, inputs, compiler))(y)
    torch.testing.assert_close(got, want)
    assert steps(got) == steps(want)
    cotangent = torch.randn_like(want)
    torch.testing.assert_close(torch.autograd.grad(got, y, cotangent), torch.autograd.grad(want, x, cotangent))
