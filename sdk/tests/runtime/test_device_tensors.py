"""Parts on memory that PyTorch does not know: a target whose kernels work on blocks of bytes behind handles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import keel
import keel_interp
from keel import KeelError, Launcher, LoopTarget, Source, loop_backend
from keel.loops import parse
from keel.plugin import CompileContext, DeviceMemory, Option, memory_of
from keel.testing import compile_calls, kernel_launchers

aten = torch.ops.aten
DOUBLED = """
kernel doubled(in0: f32[n]) -> (out0: f32[n]) where n:
  parallel i0 < n:
    %0 = load in0[i0]
    %1 = add %0 %0
    store out0[i0] %1
"""


@dataclass
class Blocks:
    """A device's memory. A block is a list with its bytes, so that no tensor of PyTorch's is one by chance."""

    put_bytes: list[int] = field(default_factory=list)
    got_bytes: list[int] = field(default_factory=list)

    def allocate(self, size: int) -> Any:
        return [torch.full((size,), 0xAB, dtype=torch.uint8)]

    def put(self, tensor: Tensor) -> Any:
        self.put_bytes.append(tensor.numel())
        return [tensor.clone()]

    def get(self, block: Any) -> Tensor:
        self.got_bytes.append(block[0].numel())
        return block[0].clone()

    def target(self) -> LoopTarget:
        """A target that interprets kernels on these blocks."""

        def build(sources: Sequence[Source]) -> list[Launcher]:
            return [_inside(launcher) for launcher in keel_interp.build(sources)]

        memory = DeviceMemory(allocate=self.allocate, put=self.put, get=self.get)
        return replace(keel_interp.target, name="blocks", build=build, externs={}, checks=False, memory=lambda: memory)


def _inside(launcher: Launcher) -> Launcher:
    def launch(*arguments: Any) -> None:
        launcher(*[_data(a) if isinstance(a, Tensor) else a for a in arguments])

    return launch


def _data(tensor: Tensor) -> Tensor:
    (data,), start = memory_of(tensor)
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    size = 1 + sum((n - 1) * stride for n, stride in steps) if tensor.numel() else 0
    assert tensor.device.type == "meta" and len(data) >= start + size * tensor.itemsize
    return data[start:].view(tensor.dtype)[:size]


@pytest.fixture
def blocks() -> Blocks:
    torch.compiler.reset()
    torch.manual_seed(0)
    return Blocks()


def test_a_model_runs_and_its_weights_are_copied_once(blocks: Blocks) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    compiled = keel.compile(model, backends=[loop_backend(blocks.target())], strict=True, fullgraph=True)
    x = torch.randn(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
        first = sum(blocks.put_bytes)
        blocks.put_bytes.clear()
        torch.testing.assert_close(compiled(x + 1), model(x + 1))
        assert first == 4 * (3 * 4 + 4 * 8 + 8 + 8 * 2 + 2) and blocks.put_bytes == [4 * 3 * 4]
        model[0].weight.mul_(2)
        torch.testing.assert_close(compiled(x), model(x))
    assert blocks.got_bytes == [4 * 3 * 2] * 3


def test_training_copies_parameters_and_gives_pytorchs_gradients(blocks: Blocks) -> None:
    model, x = nn.Linear(4, 2), torch.randn(3, 4)
    compiled = keel.compile(model, backends=[loop_backend(blocks.target())], strict=True)
    wanted = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    torch.testing.assert_close(torch.autograd.grad(compiled(x).square().sum(), list(model.parameters())), wanted)


def test_sizes_may_be_symbolic_and_views_are_copied_as_they_lie(blocks: Blocks) -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        return x.softmax(-1).sum(0), x.t().exp(), x[1:] * 2

    compiled = keel.compile(fn, backends=[loop_backend(blocks.target())], strict=True, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 8)[:, 1:7:2]
        torch.testing.assert_close(compiled(x), fn(x))


def test_results_that_are_views_of_inputs_are_views_of_the_hosts_tensors(blocks: Blocks) -> None:
    x = torch.arange(12.0).view(3, 4)
    calls = [(aten.t.default, (x,), {}), (aten.mul.Tensor, (x, x), {})]
    batch = compile_calls(calls, backends=[loop_backend(blocks.target())], strict=True)
    (turned,), (squared,) = batch.run([((x,), {}), ((x, x), {})])
    assert turned.data_ptr() == x.data_ptr() and turned.shape == (4, 3) and torch.equal(squared, x * x)


def test_an_index_out_of_range_is_an_error_once(blocks: Blocks) -> None:
    compiled = keel.compile(torch.embedding, backends=[loop_backend(blocks.target())], strict=True)
    table, right, wrong = torch.randn(5, 3), torch.tensor([4, 0]), torch.tensor([1, 7])
    assert torch.equal(compiled(table, right), table[right])
    with pytest.raises(IndexError, match="index 7 is out of bounds for a dimension of size 5"):
        compiled(table, wrong)
    assert torch.equal(compiled(table, right), table[right])


def test_empty_tensors(blocks: Blocks) -> None:
    compiled = keel.compile(lambda x: x * 2, backends=[loop_backend(blocks.target())], strict=True, dynamic=False)
    assert compiled(torch.empty(0, 3)).shape == (0, 3)


def test_memory_may_depend_on_options(blocks: Blocks) -> None:
    names: list[str] = []

    def memory(ctx: CompileContext) -> DeviceMemory:
        names.append(ctx.options["card"])
        return DeviceMemory(allocate=blocks.allocate, put=blocks.put, get=blocks.get)

    card = Option(name="card", type=str, default="first", sentence="Which card.")
    backend = loop_backend(replace(blocks.target(), memory=memory, options=(card,)))
    keel.compile(torch.exp, backends=[backend], options={"blocks.card": "second"}, strict=True)(torch.ones(3))
    assert names == ["second"]


def test_kernels_alone_run_on_tensors_of_the_host(blocks: Blocks) -> None:
    (launch,) = kernel_launchers(blocks.target(), [parse(DOUBLED)])
    x, out = torch.arange(4.0), torch.zeros(4)
    launch(x, out, 4)
    assert torch.equal(out, x + x)


def test_a_target_with_memory_has_no_externs(blocks: Blocks) -> None:
    with pytest.raises(KeelError, match="memory of its own and externs"):
        replace(blocks.target(), externs=keel_interp.target.externs)


@pytest.mark.parametrize("wrong", ["allocate", "put", "get"])
def test_what_is_not_a_function_is_refused(wrong: str) -> None:
    functions: dict[str, Callable[..., Any] | str] = {"allocate": len, "put": len, "get": len}
    with pytest.raises(KeelError, match=f"A DeviceMemory has {wrong}='no'"):
        DeviceMemory(**functions | {wrong: "no"})  # type: ignore[arg-type]
