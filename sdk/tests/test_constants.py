"""What a backend learns about parameters and buffers, constants prepared once per version, and frozen graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import keel
from keel import Backend, KeelError, KeelWarning
from keel.plugin import CompileContext, Constant, PreparedConstants, Staged

pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")


class Net(nn.Module):
    """A parameter, a buffer that is read, and a tensor in an attribute."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 3))
        self.register_buffer("scale", torch.tensor([2.0, 3.0, 4.0]))
        self.shift = torch.tensor([1.0, 0.0, -1.0])

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layers(x) * (self.scale + 1).rsqrt() + self.shift)


class Counter(nn.Module):
    """A buffer that every call writes to."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return torch.as_tensor(x * self.weight + self.calls)


class Reads(nn.Module):
    """A buffer that every call reads, before it writes to it."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        result = x + self.calls * 2
        self.calls += 1
        return result


class Picks(nn.Module):
    """A buffer with values that decide a size."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([True, False, True]))

    def forward(self, x: Tensor) -> Tensor:
        return x[self.mask.nonzero().flatten()] * 2


class Vendor:
    """A backend that takes its constants prepared: it counts how often, and what it was told."""

    def __init__(self) -> None:
        self.prepared: list[dict[str, Tensor]] = []
        self.known: list[dict[str, Constant]] = []
        self.backend = Backend(name="acme", device="cpu", supports=lambda call: None, compile=self.compile)

    def compile(self, gm: fx.GraphModule, ctx: CompileContext) -> Any:
        self.known.append(dict(ctx.constants))
        names = [node.name for node in gm.graph.find_nodes(op="placeholder")]

        def prepare(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
            self.prepared.append({ctx.constants[name].name or name: value for name, value in values.items()})
            return {name: value.clone() for name, value in values.items()}

        def run(constants: dict[str, Tensor], *others: Tensor) -> Any:
            rest = iter(others)
            return gm(*[constants[name] if name in constants else next(rest) for name in names])

        return PreparedConstants(prepare, run)


class Fails(Vendor):
    """It cannot prepare its constants."""

    def compile(self, gm: fx.GraphModule, ctx: CompileContext) -> Any:
        def prepare(values: Mapping[str, Tensor]) -> None:
            raise MemoryError("the device is full")

        return PreparedConstants(prepare, gm)


def inference(model: nn.Module, vendor: Vendor, **options: Any) -> Any:
    torch.compiler.reset()
    compiled = keel.compile(model, **{"backends": [vendor.backend], "strict": True, **options})

    def call(*args: Tensor) -> Any:
        with torch.no_grad():
            return compiled(*args)

    return call


def test_constants_have_the_names_of_the_state_dict() -> None:
    vendor = Vendor()
    inference(Net(), vendor)(torch.ones(2, 4))
    found = {(each.kind, each.name, each.value is None) for each in vendor.known[0].values()}
    assert found == {
        ("parameter", "layers.0.weight", True),
        ("parameter", "layers.0.bias", True),
        ("buffer", "scale", True),
        ("constant", "shift", True),
    }


MESSAGE = r"(?s)acme could not prepare the constants of .*acme: MemoryError: the device is full.*test_constants.py"


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_last_resort_compiles_a_part_whose_constants_cannot_be_prepared(dynamic: bool, freeze: bool) -> None:
    vendor, model, x = Fails(), Net(), torch.randn(2, 4)
    vendor.backend = replace(vendor.backend, static=dynamic)
    run = inference(model, vendor, backends=[vendor.backend, "eager"], strict=False, dynamic=dynamic, freeze=freeze)
    with pytest.warns(KeelWarning, match=MESSAGE + ".*eager compiles it instead") as warned:
        for _ in range(2):
            torch.testing.assert_close(run(x), model(x))
    assert len(warned) == 1, "in the first call"
    assert dynamic == ("for the sizes" in str(warned[0].message))


def test_constants_that_cannot_be_prepared_are_an_error_under_strict() -> None:
    with pytest.raises(KeelError, match=MESSAGE) as raised:
        inference(Net(), Fails())(torch.randn(2, 4))
    assert raised.value.code == "compile-raised"
    assert isinstance(raised.value.__cause__, MemoryError)


def test_they_are_prepared_once_per_version() -> None:
    vendor, model = Vendor(), Net()
    run, x = inference(model, vendor), torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(run(x), model(x))
        assert len(vendor.prepared) == 1
        model.layers[0].get_parameter("weight").mul_(2)
        torch.testing.assert_close(run(x), model(x))
        torch.testing.assert_close(run(x), model(x))
    assert len(vendor.prepared) == 2
    assert len(vendor.known) == 1, "the part was compiled once"


@pytest.mark.parametrize("in_stages", [False, True])
def test_compile_computes_with_values_of_constants(in_stages: bool) -> None:
    packed = list[Tensor]()

    def begin(gm: fx.GraphModule, ctx: CompileContext) -> Any:
        values = [each.value.detach() for each in ctx.constants.values() if each.value is not None]
        packed.extend(value * torch.full((1,), 2.0) for value in values)
        return lambda: gm

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Any:
        return begin(gm, ctx)()

    torch.compiler.reset()
    how = Staged(begin) if in_stages else compile
    vendor, model, x = replace(Vendor().backend, compile=how), Net(), torch.ones(2, 4)
    with torch.no_grad():
        keel.compile(model, backends=[vendor], strict=True, freeze=True)(x)
        sums = sorted(float(tensor.sum()) for tensor in packed)
        weights = [model.layers[0].weight, model.layers[0].bias, (model.scale + 1).rsqrt(), model.shift]
    assert sums == pytest.approx(sorted(2 * float(tensor.detach().sum()) for tensor in weights), abs=1e-5)


def test_a_part_alone_is_compiled_to_a_function_of_all_its_inputs() -> None:
    vendor, graphs = Vendor(), list[tuple[fx.GraphModule, CompileContext]]()

    def spy(gm: fx.GraphModule, ctx: CompileContext) -> Any:
        graphs.append((gm, ctx))
        return gm

    torch.compiler.reset()
    with torch.no_grad():
        keel.compile(Net(), backends=[replace(vendor.backend, compile=spy)], strict=True)(torch.ones(2, 4))
    [(gm, ctx)] = graphs
    inputs = [torch.rand(node.meta["val"].shape) for node in gm.graph.find_nodes(op="placeholder")]
    for run in (keel.testing.compile_part(vendor.backend, gm, ctx), keel.testing.compile_part(vendor.backend, gm)):
        for _ in range(2):
            torch.testing.assert_close(run(*inputs), gm(*inputs))
    assert [len(tensors) for tensors in vendor.prepared] == [4, 0]


def test_what_is_not_a_callable_is_not_a_part() -> None:
    broken = Backend(name="acme", device="cpu", supports=lambda call: None, compile=lambda gm: None)  # type: ignore
    with pytest.raises(TypeError, match="returned NoneType, not a callable"):
        keel.testing.compile_part(broken, fx.GraphModule({}, fx.Graph()))


def test_a_replaced_parameter_is_prepared_again() -> None:
    vendor, model = Vendor(), Net()
    run, x = inference(model, vendor), torch.randn(2, 4)
    run(x)
    model.layers[0].weight = nn.Parameter(torch.randn(3, 4))
    with torch.no_grad():
        torch.testing.assert_close(run(x), model(x))


def test_a_buffer_that_is_written_to_is_no_constant() -> None:
    vendor, model, own = Vendor(), Counter(), Counter()
    run, x = inference(model, vendor), torch.ones(3)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(run(x), own(x))
    assert {each.name for each in vendor.known[0].values()} == {"weight"}
    assert len(vendor.prepared) == 1
    torch.testing.assert_close(model.calls, own.calls)


def test_graphs_of_training_have_none() -> None:
    torch.compiler.reset()
    vendor, model = Vendor(), Net()
    keel.compile(model, backends=[vendor.backend], strict=True)(torch.ones(2, 4)).sum().backward()
    assert vendor.known == [{}, {}]
    assert vendor.prepared == [{}, {}]
    assert model.layers[0].weight.grad is not None


def test_frozen_constants_have_values_and_are_folded() -> None:
    vendor, model = Vendor(), Net()
    run, x = inference(model, vendor, freeze=True), torch.randn(2, 4)
    with torch.no_grad():
        torch.testing.assert_close(run(x), model(x), rtol=0, atol=0)
        constants = vendor.known[0].values()
        assert all(each.value is not None for each in constants)
        assert {each.name for each in constants} == {"layers.0.weight", "layers.0.bias", "shift", ""}, "scale is folded"
        before = run(x)
        model.layers[0].get_parameter("weight").mul_(2)
        torch.testing.assert_close(run(x), before, rtol=0, atol=0)
    assert len(vendor.prepared) == 1


def test_a_frozen_model_still_writes_to_its_buffers() -> None:
    vendor, model, own = Vendor(), Counter(), Counter()
    run, x = inference(model, vendor, freeze=True), torch.ones(3)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(run(x), own(x))
    torch.testing.assert_close(model.calls, own.calls)


@pytest.mark.parametrize("freeze", [False, True])
def test_a_frozen_program_still_writes_to_its_buffers(freeze: bool) -> None:
    program = torch.export.export(Reads(), (torch.tensor(1.0),))
    run = keel.compile_exported(program, backends=["interp"], strict=True, freeze=freeze)
    assert [float(run(torch.tensor(1.0))) for _ in range(3)] == [1, 3, 5]


def test_sizes_that_values_of_constants_decide_are_not_folded() -> None:
    torch.compiler.reset()
    model, x = Picks(), torch.randn(3, 2)
    with torch.no_grad(), torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(model, backend="keel", fullgraph=True, options={"backends": ["eager"], "freeze": True})
        torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=0)


def test_what_a_frozen_graph_returns_is_new_in_each_call() -> None:
    weight = nn.Parameter(torch.arange(4.0))

    def double(x: Tensor) -> tuple[Tensor, Tensor]:
        return weight * 2, x + weight

    torch.compiler.reset()
    compiled = keel.compile(double, backends=["interp"], strict=True, freeze=True)
    with torch.no_grad():
        first, _ = compiled(torch.ones(4))
        first.zero_()
        again, total = compiled(torch.ones(4))
    torch.testing.assert_close(again, torch.arange(4.0) * 2)
    torch.testing.assert_close(total, torch.arange(4.0) + 1)


def test_freezing_leaves_training_alone() -> None:
    torch.compiler.reset()
    model = Net()
    compiled = keel.compile(model, backends=["interp"], strict=True, freeze=True)
    x = torch.randn(2, 4)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))
        with torch.no_grad():
            model.layers[0].get_parameter("weight").add_(1)


@pytest.mark.parametrize("freeze", [False, True])
def test_exported_programs_say_what_their_tensors_are(freeze: bool) -> None:
    vendor, model, x = Vendor(), Net().eval(), torch.randn(2, 4)
    program = torch.export.export(model, (x,))
    run = keel.compile_exported(program, backends=[vendor.backend], strict=True, freeze=freeze)
    torch.testing.assert_close(run(x), model(x))
    named = {each.name: each.value is not None for each in vendor.known[0].values() if each.name}
    assert named.items() >= {"layers.0.weight": freeze, "layers.0.bias": freeze}.items()
    with torch.no_grad():
        program.state_dict["layers.0.weight"].zero_()
    expected = run(x)
    assert torch.equal(expected, model(x)) != freeze


def test_a_dynamic_size_has_its_bounds_and_its_value() -> None:
    torch.compiler.reset()
    seen: list[CompileContext] = []

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Any:
        seen.append(ctx)
        return gm

    acme = Backend(name="acme", device="cpu", supports=lambda call: None, compile=compile)
    x = torch.ones(5, 3)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
    keel.compile(torch.sin, backends=[acme], strict=True)(x)
    [size] = seen[0].sizes.values()
    assert (size.low, size.high, size.typical) == (2, 64, 5)
    assert seen[0].device == torch.device("cpu")
