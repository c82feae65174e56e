"""What not every release of PyTorch that Keel supports can do: tried out, so that tests that need it say so."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, fx


def skip_without(ability: Callable[[], bool]) -> None:
    """Skips a test that needs what this PyTorch cannot do; the ability's docstring is the reason."""
    if not ability():
        pytest.skip(f"Not so in PyTorch {torch.__version__}: {ability.__doc__}")


def dynamo_graphs(fn: Callable[..., Any], *inputs: Tensor) -> list[fx.GraphModule]:
    """What Dynamo gives a backend for a function, sizes and numbers that only a run tells among it."""
    graphs: list[fx.GraphModule] = []

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(gm)
        return gm.forward

    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        torch.compile(fn, backend=backend, fullgraph=True)(*inputs)
    return graphs


def _raises(error: type[Exception], words: str, call: Callable[[], Any]) -> bool:
    """True if a call raises that error, which says these words; another error is a defect of the trial."""
    try:
        call()
    except error as raised:
        assert words in str(raised)
        return True
    return False


@cache
def keeps_messages() -> bool:
    """Dynamo gives a backend the messages of torch._check."""

    def fn(x: Tensor) -> Tensor:
        torch._check(x.nonzero().size(0) == 2, lambda: "There are two.")
        return x + 1

    (gm,) = dynamo_graphs(fn, torch.tensor([0, 1, 2]))
    return any("There are two." in n.args for n in gm.graph.nodes)


@cache
def asserts_floats() -> bool:
    """Dynamo takes assertions that a float of a tensor is another one."""

    def fn(x: Tensor) -> Tensor:
        torch._check(x.sum().item() == 2.5)
        return x + 1

    # Its own assertion, of an integer that it takes the float for.
    error, words = torch._dynamo.exc.InternalTorchDynamoError, "Runtime assertion failed"
    return not _raises(error, words, lambda: dynamo_graphs(fn, torch.tensor([1.0, 1.5])))


@cache
def exports_flags() -> bool:
    """Exported programs with an assertion of a tensor's one bool can be decomposed."""

    class Flag(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch._check(x.any().item())
            return x + 1

    program = torch.export.export(Flag(), (torch.tensor([True, False]),))
    return not _raises(RuntimeError, "is not tracked with proxy", program.run_decompositions)


@cache
def writes_to_unknown_slices() -> bool:
    """Dynamo takes writes to a slice whose place only a run tells, without assertions that it is within the tensor."""

    def fn(x: Tensor, at: Tensor) -> Tensor:
        place = int(at)
        x[place : place + 2] = x[:2] * 2
        return x + 1

    error, inputs = torch._dynamo.exc.UserError, (torch.ones(4), torch.tensor([1]))
    return not _raises(error, "data-dependent", lambda: dynamo_graphs(fn, *inputs))


@cache
def runs_control_deps() -> bool:
    """The operator control_deps, which graphs with events have, runs in eager."""
    try:
        from torch._inductor.fx_passes.control_dependencies import control_deps
    except ImportError:
        return False
    return control_deps.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeExplicitAutograd)


@cache
def shifts_by_sizes() -> bool:
    """Dynamo takes a shift by a size that only a run gives."""
    shifted = torch.compile(lambda x, n: x + (1 << n), backend="eager", dynamic=True)
    return not _raises(torch._dynamo.exc.TorchRuntimeError, "lshift", lambda: shifted(torch.ones(2), 5))


@cache
def writes_in_branches() -> bool:
    """Dynamo takes branches of torch.cond that write to what they are given."""

    def fn(p: Tensor, x: Tensor) -> Tensor:
        return torch.cond(p, lambda x: x.mul_(2), lambda x: x.cos(), (x,))

    torch.compiler.reset()
    compiled = torch.no_grad()(torch.compile(fn, backend="eager"))
    error, inputs = torch._dynamo.exc.UncapturedHigherOrderOpError, (torch.tensor(True), torch.ones(2))
    return not _raises(error, "input mutation", lambda: compiled(*inputs))
