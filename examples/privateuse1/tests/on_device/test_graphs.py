"""Graphs of the device: capture and replay by PyTorch's interface, and mode ``reduce-overhead``."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import keel
from keel.plugin import Backend, PreparedConstants
from keel_privateuse1 import NAME
from keel_privateuse1.graph_backend import backend as graph_backend
from keel_privateuse1.loop_target import backend as loop_backend

LEVELS = pytest.mark.parametrize("backend", [loop_backend, graph_backend], ids=lambda b: b.name)
DEVICE = torch.device(NAME, 0)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    torch.example.set_device(0)  # type: ignore[attr-defined]
    torch.example.reset_counters()  # type: ignore[attr-defined]


def replays() -> int:
    """The number of graphs that were replayed since the last time that this was asked."""
    count: int = torch.example.counters().replays  # type: ignore[attr-defined]
    torch.example.reset_counters()  # type: ignore[attr-defined]
    return count


def compiled(fn: Callable[..., Any], backend: Backend, **options: Any) -> Callable[..., Any]:
    return keel.compile(fn, backends=[backend], strict=True, mode="reduce-overhead", **options)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


@pytest.fixture
def captured() -> Any:
    """A graph of a softmax and of random numbers added to it, its input and its result."""
    x, stream, graph = torch.ones(3, device=NAME), torch.Stream(NAME), new_graph()
    state = torch.example.get_rng_state()  # type: ignore[attr-defined]
    with stream:
        graph.capture_begin()
        y = (x * 2).softmax(-1) + torch.rand(3, device=NAME)
        graph.capture_end()
    assert state.equal(torch.example.get_rng_state())  # type: ignore[attr-defined]
    return graph, x, y


def new_graph() -> Any:
    return getattr(torch.accelerator, "Graph", getattr(torch.example, "Graph", None))()  # type: ignore[attr-defined]


def test_a_graph_computes_when_it_is_replayed(captured: Any) -> None:
    graph, x, y = captured
    torch.manual_seed(3)
    graph.replay()
    first = y.cpu()
    graph.replay()
    torch.manual_seed(3)
    torch.testing.assert_close(first, torch.full((3,), 1 / 3) + torch.rand(3))
    torch.testing.assert_close(y.cpu(), torch.full((3,), 1 / 3) + torch.rand(3))
    x.copy_(torch.tensor([0.0, 0.0, 9.0]))
    graph.replay()
    assert y.cpu().argmax() == 2


def test_memory_of_a_graph_stays_with_its_pool() -> None:
    graph, stream = new_graph(), torch.Stream(NAME)
    with stream:
        graph.capture_begin()
        inside = torch.empty(1000, device=NAME).data_ptr()
        again = torch.empty(1000, device=NAME).data_ptr()
        graph.capture_end()
    assert inside == again  # freed memory is used again in the graph, and only there
    assert torch.empty(1000, device=NAME).data_ptr() != inside
    graph.reset()
    assert inside in {x.data_ptr() for x in [torch.empty(1000, device=NAME) for _ in range(9)]}


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: torch.linalg.inv(x.reshape(1, 3)[:, :1]),
    ],
    ids=["a value", "a copy", "a size", "a mask", "a fallback"],
)
def test_work_of_the_host_cannot_be_captured(work: Callable[[Tensor], Any]) -> None:
    x, graph = torch.ones(3, device=NAME), new_graph()
    with torch.Stream(NAME):
        graph.capture_begin()
        with pytest.raises(RuntimeError, match="a graph cannot record"):
            work(x)
        graph.capture_end()


@LEVELS
def test_inference(backend: Backend) -> None:
    model = network().to(NAME)
    run = compiled(model, backend)
    for number in range(8):
        x = torch.randn(5, 6, device=NAME)
        with torch.no_grad():
            assert run(x).cpu().equal(keel.compile(model, backends=[backend])(x).cpu())
        assert replays() == (number >= 2)


def test_graphs_of_an_older_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.accelerator, "Graph", raising=False)
    model = network().to(NAME)
    run = compiled(model, loop_backend)
    for _ in range(6):
        x = torch.randn(5, 6, device=NAME)
        torch.testing.assert_close(run(x).cpu(), model(x).cpu())
    assert replays() == 4


@LEVELS
def test_training(backend: Backend) -> None:
    model = network().to(NAME)
    twin = copy.deepcopy(model)
    steps = [(m, torch.optim.SGD(m.parameters(), lr=0.1)) for m in (model, twin)]
    runs = [compiled(model, backend), keel.compile(twin, backends=[backend])]
    counts = list[int]()
    for _ in range(10):
        x = torch.randn(5, 6, device=NAME)
        for (_, optimizer), run in zip(steps, runs, strict=True):
            optimizer.zero_grad()
            run(x).square().mean().backward()
            optimizer.step()
        counts.append(replays())
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            assert p.cpu().equal(q.cpu())
    assert counts[-3:] == [2, 2, 2]


@LEVELS
def test_gradients_that_are_added(backend: Backend) -> None:
    """Two forward calls precede their backward calls, and gradients live over several steps."""
    model = network().to(NAME)
    twin = copy.deepcopy(model)
    runs = [compiled(model, backend), keel.compile(twin, backends=[backend])]
    count = 0
    for _ in range(8):
        xs = [torch.randn(5, 6, device=NAME) for _ in range(2)]
        for run in runs:
            sum(run(x).square().mean() for x in xs).backward()  # type: ignore[union-attr]
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            assert p.grad is not None and q.grad is not None
            torch.testing.assert_close(p.grad.cpu(), q.grad.cpu())
        count = replays()
    assert count == 4


@LEVELS
def test_results_stay_alive_over_later_calls(backend: Backend) -> None:
    def step(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x.sin()
        return y, y + 1, x

    run = compiled(step, backend)
    xs = [torch.randn(7, device=NAME) for _ in range(12)]
    results = [run(x) for x in xs]
    assert replays() == 10
    for x, (a, b, c) in zip(xs, results, strict=True):
        torch.testing.assert_close((a.cpu(), b.cpu()), (x.cpu().sin(), x.cpu().sin() + 1))
        assert c is x


@LEVELS
def test_what_forward_saves_stays_alive(backend: Backend) -> None:
    def step(x: Tensor, w: Tensor) -> Tensor:
        return (x * w).sin().exp().sum()

    run = compiled(step, backend)
    pairs = [(torch.randn(7), torch.randn(7)) for _ in range(24)]
    here = [tuple(t.to(NAME).requires_grad_() for t in pair) for pair in pairs]
    losses = [run(*pair) for pair in here]
    assert 0 < replays() <= 24 - 3
    for pair, inputs, loss in reversed(list(zip(pairs, here, losses, strict=True))):
        got = torch.autograd.grad(loss, inputs)
        on_host = [t.clone().requires_grad_() for t in pair]
        torch.testing.assert_close([g.cpu() for g in got], list(torch.autograd.grad(step(*on_host), on_host)))


@LEVELS
def test_a_graph_for_each_size(backend: Backend) -> None:
    model = network().to(NAME)
    run = compiled(model, backend, dynamic=True)
    for _ in range(4):
        for rows in range(2, 12):
            x = torch.randn(rows, 6, device=NAME)
            with torch.no_grad():
                torch.testing.assert_close(run(x).cpu(), model(x).cpu())
    assert replays() == 2 * 10


def test_graphs_are_few() -> None:
    model = network().to(NAME)
    run = compiled(model, graph_backend, dynamic=True)
    start, used = torch.accelerator.memory_allocated(), list[int]()
    for rows in range(1024, 1024 + 48):
        for _ in range(64):
            with torch.no_grad():
                run(torch.randn(rows, 6, device=NAME))
        used.append(torch.accelerator.memory_allocated() - start)
    assert 48 < replays() < 48 * 63  # graphs are dropped, and captured later and later
    assert used[15] > 0.5 * used[-1] > 0 and max(used) < 1.2 * used[15]


@LEVELS
def test_inputs_that_move(backend: Backend) -> None:
    """Strided views, expanded and overlapping inputs, and parameters whose memory is exchanged."""
    weight = nn.Parameter(torch.randn(6, 6, device=NAME))

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return F.linear(x, self.weight) + y

    model = Product()
    run = compiled(model, backend)
    for number in range(24):
        x = torch.randn(6, 40, device=NAME)[:, number : number + 6]
        y = torch.randn(1, 6, device=NAME).expand(6, 6)
        if number % 8 == 7:
            weight.data = torch.randn(6, 6, device=NAME)
        with torch.no_grad():
            torch.testing.assert_close(run(x, y).cpu(), model(x, y).cpu())
    assert replays() > 8


@LEVELS
def test_random_numbers_advance(backend: Backend) -> None:
    def draw(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5) + torch.rand_like(x)

    x = torch.ones(64, device=NAME)
    run, plain = compiled(draw, backend), keel.compile(draw, backends=[backend])
    run(x), plain(x)
    results = list[list[Tensor]]()
    for fn in (run, plain):
        torch.manual_seed(7)
        results.append([fn(x).cpu() for _ in range(6)])
    assert replays() >= 3
    assert all(a.equal(b) for a, b in zip(*results, strict=True))
    assert not results[0][-1].equal(results[0][-2])


@LEVELS
def test_buffers_that_are_written(backend: Backend) -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)).to(NAME)
    twin = copy.deepcopy(model)
    run, plain = compiled(model, backend), keel.compile(twin, backends=[backend])
    for _ in range(6):
        x = torch.randn(2, 2, 5, 5, device=NAME)
        with torch.no_grad():
            torch.testing.assert_close(run(x).cpu(), plain(x).cpu())
    assert replays() >= 3
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(buffer.cpu(), twin.get_buffer(name).cpu())


def test_an_index_out_of_range_is_an_error_of_the_next_replay() -> None:
    table, rows = torch.randn(10, 4, device=NAME), torch.tensor([3, 9], device=NAME)
    run = compiled(F.embedding, loop_backend)
    for _ in range(4):
        torch.testing.assert_close(run(rows, table).cpu(), table.cpu()[[3, 9]])
    assert replays() == 2
    run(rows + 1, table)
    with pytest.raises(keel.KeelError, match=r"(?s)index 10 is out of bounds.*or an earlier one"):
        run(rows, table)
    torch.testing.assert_close(run(rows, table).cpu(), table.cpu()[[3, 9]])
    assert replays() == 3


def test_constants_that_are_prepared_are_prepared_again() -> None:
    """A graph that holds prepared constants is not replayed after they have changed."""
    prepared = list[int]()

    def compile(gm: torch.fx.GraphModule, ctx: keel.plugin.CompileContext) -> PreparedConstants:
        names = [n.name for n in gm.graph.find_nodes(op="placeholder")]

        def prepare(constants: dict[str, Tensor]) -> dict[str, Tensor]:
            prepared.append(1)
            return {name: constant.clone() for name, constant in constants.items()}

        def run(state: dict[str, Tensor], *others: Tensor) -> Any:
            rest = iter(others)
            return gm(*(state[name] if name in state else next(rest) for name in names))

        return PreparedConstants(prepare, run)

    backend = Backend(name="prepares", device=NAME, supports=lambda call: None, compile=compile, any_layout=True)
    model = nn.Linear(4, 4).to(NAME)
    run = compiled(model, backend)
    for number in range(16):
        if number == 8:
            with torch.no_grad():
                model.weight.mul_(2)
        x = torch.randn(3, 4, device=NAME)
        with torch.no_grad():
            torch.testing.assert_close(run(x).cpu(), model(x).cpu())
    assert len(prepared) == 2 and replays() > 8


def test_a_backend_whose_work_cannot_be_captured() -> None:
    backend = Backend(
        name="elsewhere", device=NAME, supports=lambda call: None, compile=lambda gm: gm, capturable=False
    )
    x = torch.randn(4, device=NAME)
    run = compiled(torch.sin, backend)
    with pytest.warns(keel.KeelWarning, match="Work of the backend elsewhere cannot be captured"):
        results = [run(x).cpu() for _ in range(5)]
    assert replays() == 0 and all(r.equal(x.cpu().sin()) for r in results)


def test_a_part_that_cannot_be_captured_runs_without() -> None:
    def compile(gm: torch.fx.GraphModule) -> Any:
        def run(*inputs: Tensor) -> Any:
            inputs[0].sum().item()
            return gm(*inputs)

        return run

    backend = Backend(name="waits", device=NAME, supports=lambda call: None, compile=compile)
    x = torch.randn(4, device=NAME)
    run = compiled(torch.sin, backend)
    with pytest.warns(keel.KeelWarning, match="could not capture it: .*a value that the host reads") as warned:
        results = [run(x).cpu() for _ in range(5)]
    assert len(warned) == 1 and all(r.equal(x.cpu().sin()) for r in results)
    torch.example.reset_counters()  # type: ignore[attr-defined]


def test_a_device_that_cannot_capture_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keel.torch_adapter.device_graphs.graph_type", lambda device: None)
    x = torch.randn(4, device=NAME)
    with pytest.warns(keel.KeelWarning, match="Mode reduce-overhead has no effect on example") as warned:
        results = [compiled(torch.sin, loop_backend)(x).cpu() for _ in range(5)]
    assert len(warned) == 1 and all(r.equal(x.cpu().sin()) for r in results)


@LEVELS
def test_results_outlive_their_graph(backend: Backend) -> None:
    def step(x: Tensor) -> Tensor:
        return (x.sin() * x).sum()

    run, x = compiled(step, backend), torch.randn(64, device=NAME, requires_grad=True)
    for _ in range(8):
        x.grad = None
        run(x).backward()
    assert x.grad is not None and replays() > 8
    want = x.detach().cpu()
    want = want.sin() + want * want.cos()
    del run
    torch.compiler.reset()
    gc.collect()
    more = [torch.zeros(64, device=NAME) for _ in range(64)]
    torch.testing.assert_close(x.grad.cpu(), want)
    assert not any(t.cpu().any() for t in more)


@LEVELS
def test_a_graph_of_the_program(backend: Backend) -> None:
    """A compiled function that is called while the program captures a graph is a part of that graph."""
    run, x, graph = compiled(torch.sin, backend), torch.randn(4, device=NAME), new_graph()
    for _ in range(4):
        run(x)
    with torch.Stream(NAME):
        graph.capture_begin()
        y = run(x)
        graph.capture_end()
    x.fill_(2)
    graph.replay()
    torch.testing.assert_close(y.cpu(), torch.full((4,), 2.0).sin())


@LEVELS
def test_the_second_device(backend: Backend) -> None:
    model = network().to(f"{NAME}:1")
    run = compiled(model, backend)
    for _ in range(6):
        x = torch.randn(5, 6, device=f"{NAME}:1")
        torch.testing.assert_close(run(x).cpu(), model(x).cpu())
        run(x).sum().backward()
    assert replays() > 4
