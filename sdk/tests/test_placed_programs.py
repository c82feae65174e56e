"""Programs beyond plain operators, placed by cost on two backends: each is placed and right, or refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _functional_collectives as collectives
from torch.nn.attention.flex_attention import flex_attention

import keel
from keel import Backend, Cost, KeelError, Rule, Support
from keel.compiler import DynamoBackend
from keel.events import EventLog
from keel.settings import read_settings

from .line import takes

pytestmark = pytest.mark.slow

PRODUCTS = takes(
    "mm",
    "addmm",
    "bmm",
    "t",
    name="acme",
    cost=Cost(flops={torch.float32: 1e12}, scalars=1e6, bandwidth=1e10, launch=1e-6),
)
PLAIN = Backend(
    name="plain",
    device="*",
    supports=lambda call: None,
    compile=lambda gm: gm.forward,
    cost=Cost(flops={torch.float32: 1e9}, scalars=1e9, bandwidth=1e10, launch=1e-6, fuses=True),
)
X = torch.randn(32, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


def placed(fn: Callable[..., Any], *args: Any, dynamic: bool | None = None) -> tuple[Any, dict[str, str]]:
    """The result, and the owner of each operator."""
    log = EventLog()
    settings = read_settings(None, {"backends": [PRODUCTS, PLAIN]})
    result = torch.compile(fn, backend=DynamoBackend(settings, log), dynamic=dynamic, fullgraph=True)(*args)
    assert log.graphs and all(c.plan.claim is not None for c in log.graphs)
    nodes = {n.name: str(n.target) for c in log.graphs for n in c.gm.graph.nodes if n.op == "call_function"}
    return result, {nodes[name]: p.owner.name for c in log.graphs for p in c.plan.parts for name in p.nodes}


def cond(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin() @ x, lambda x: x.cos(), (x @ x,))


def while_loop(x: Tensor) -> Tensor:
    from torch._higher_order_ops import while_loop as loop

    return loop(lambda n, x: n < 3, lambda n, x: (n + 1, (x @ x).tanh()), (torch.zeros((), dtype=torch.int64), x))[1]


def scan(x: Tensor) -> Tensor:
    from torch._higher_order_ops import scan as fold

    return fold(lambda c, row: ((c + row).sin(), c * row), x[0] * 0, x @ x)[1]


def attention(x: Tensor) -> Tensor:
    q = (x @ x).reshape(1, 2, 16, 32)
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + (i - j))


@pytest.mark.parametrize(
    ("fn", "operator"),
    [(cond, "cond"), (while_loop, "while_loop"), (scan, "scan"), (attention, "flex_attention")],
    ids=["cond", "while_loop", "scan", "flex_attention"],
)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_operators_of_higher_order_go_whole_to_who_takes_them(fn: Callable[[Tensor], Tensor], operator: str) -> None:
    result, owners = placed(fn, X)
    torch.testing.assert_close(result, fn(X), atol=1e-4, rtol=1e-4)
    assert owners[operator] == "plain"
    assert owners.get("aten.mm.default", "acme") == "acme"


@pytest.mark.parametrize(("fn", "operator"), [(cond, "cond"), (scan, "scan")], ids=["cond", "scan"])
def test_operators_of_higher_order_that_nobody_takes_are_refused_by_name(fn: Any, operator: str) -> None:
    some = takes("mm", "sum", "gt", "sin", "cos", "mul", "select", name="some", cost=PLAIN.cost)
    with pytest.raises(KeelError, match=f"{operator}"):
        keel.compile(fn, backends=[some, PRODUCTS], strict=True, fullgraph=True)(X)


@torch.library.custom_op("keel_placed::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_custom_operators_are_placed() -> None:
    def fn(x: Tensor) -> Tensor:
        return twice(x @ x) @ x

    result, owners = placed(fn, X)
    torch.testing.assert_close(result, fn(X))
    assert owners == {"keel_placed.twice.default": "plain", "aten.mm.default": "acme"}


def test_a_part_is_told_a_size_that_none_of_its_tensors_has() -> None:
    """Behind the sort there are (n // 2 // 2 + 1) rows, of which n does not follow."""

    def fn(x: Tensor) -> Tensor:
        y = torch.cat([x[1::2][1::2], x[:1]]).sort()[0]
        return torch.stack([y, y * 2], 1).view(-1)

    compiled = keel.compile(fn, backends=[takes("sort", name="sorts"), "interp"], strict=True, dynamic=True)
    for n in (7, 10, 13):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), fn(x))


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available(), reason="This PyTorch has no torch.distributed.")
def test_functional_collectives_keep_their_order(group: None) -> None:
    def fn(x: Tensor) -> Tensor:
        y = collectives.all_reduce(x @ x, "sum", dist.group.WORLD)
        return collectives.all_reduce(y.sin() @ x, "sum", dist.group.WORLD).cos()

    result, owners = placed(fn, X)
    torch.testing.assert_close(result, fn(X))
    assert {who for op, who in owners.items() if "c10d" in op} == {"plain"} and owners["aten.mm.default"] == "acme"


def test_training_places_forward_and_backward() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Dropout(0.0), nn.Linear(64, 4))
    expected = torch.autograd.grad(model(X).square().sum(), list(model.parameters()))
    result, owners = placed(model, X)
    found = torch.autograd.grad(result.square().sum(), list(model.parameters()))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    assert set(owners.values()) == {"acme", "plain"}


def test_sizes_that_change_and_sizes_that_only_a_run_tells() -> None:
    def fn(x: Tensor) -> Tensor:
        return (x @ x.t())[x.sum(1) > 0].sin().sum(0)

    run = keel.compile(fn, backends=[PRODUCTS, PLAIN], dynamic=True)
    for n in (5, 9, 1, 32):
        torch.testing.assert_close(run(X[:n]), fn(X[:n]))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_backend_for_known_sizes_shares_graphs_with_others(dynamic: bool) -> None:
    fixed = Backend(
        name="fixed",
        device="cpu",
        compile=lambda gm: gm.forward,
        cost=PRODUCTS.cost,
        supports=Support((Rule(ops=("aten.mm",), static=True),)),
    )
    found = keel.explain(lambda x: (x @ X).sin(), X[:7], backends=[fixed, PLAIN], dynamic=dynamic)
    assert found.taken["fixed"] == 1
    torch.compiler.reset()
    run = keel.compile(lambda x: (x @ X).sin(), backends=[fixed, PLAIN], dynamic=dynamic)
    for n in (7, 5, 9):
        torch.testing.assert_close(run(X[:n]), (X[:n] @ X).sin())


def test_random_numbers_are_drawn_in_order_on_either_side() -> None:
    def fn(x: Tensor) -> Tensor:
        return (x + torch.rand_like(x)) @ x + torch.rand_like(x) @ (x * torch.rand_like(x))

    torch.manual_seed(3)
    expected = fn(X)
    torch.manual_seed(3)
    result, owners = placed(fn, X)
    torch.testing.assert_close(result, expected)
    assert set(owners.values()) == {"acme", "plain"}
