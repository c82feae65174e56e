"""Programs that write to their inputs or give them other memory, each beside eager PyTorch; what graphs are left
with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import keel
from keel import Backend
from keel.torch_adapter.mutations import taken_out

from ..line import LITTLE, Seen, takes, whole
from ..releases import skip_without, writes_to_unknown_slices
from ..twin import Make, assert_like_eager

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
BACKENDS = {"whole": [whole()], "little": [takes(*LITTLE, name="little"), whole("rest", last_resort=True)]}
aten = torch.ops.aten


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


@pytest.fixture(params=BACKENDS)
def backends(request: pytest.FixtureRequest) -> list[Backend]:
    return BACKENDS[request.param]


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape).requires_grad_()


def gives_other_data(x: Tensor, y: Tensor) -> Tensor:
    x.data = y
    return x + 1


def gives_a_row(x: Tensor, y: Tensor) -> Tensor:
    x.data = y[1]
    return x + 1


def gives_what_it_computes(x: Tensor, y: Tensor) -> Any:
    new = y * 2
    x.data = new[0]
    return x, new


def swaps_data(x: Tensor, y: Tensor) -> Tensor:
    x.data, y.data = y.data, x.data
    return x * 2


def sets(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.set_(y)
    return x * 2


def writes_to_data(x: Tensor, y: Tensor) -> Tensor:
    x.data.add_(y)
    return x * 2


def writes_without_gradients(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(0.9).add_(y, alpha=0.1)
    return x * x.detach().sum()


def swaps_contents(x: Tensor, y: Tensor) -> None:
    new, old = y.detach(), x.clone()
    x.copy_(new)
    y.copy_(old)


def rotates_contents(x: Tensor, y: Tensor, z: Tensor) -> None:
    a, b, c = x.clone(), y.clone(), z.clone()
    x.copy_(b)
    y.copy_(c)
    z.copy_(a)


def writes_its_own_transpose(x: Tensor, y: Tensor) -> Any:
    y.copy_(x.t())
    x.add_(1)
    return y.t(), x[0]


def writes_every_other(x: Tensor, b: Tensor) -> Any:
    b[::2].add_(x.detach())
    return x * 2, b[::2]


def writes_to_overlapping(x: Tensor, views: Any) -> Any:
    a, b = views
    a.add_(1)
    b.mul_(2)
    return x * 2, a + 1


def writes_other_dtypes(i: Tensor, f: Tensor, b: Tensor) -> Any:
    i.copy_(f * 2.5)
    b.copy_(f > 0)
    f.copy_(i)
    return i, b


def writes_to_parts_of_complex(c: Tensor, f: Tensor) -> Any:
    c.real.add_(f)
    c.copy_(c.conj() + 1j)
    return c.conj(), c.imag


def shrinks(x: Tensor) -> Tensor:
    x.resize_(2)
    return x + 1


def grows_a_dimension(x: Tensor) -> Tensor:
    x.unsqueeze_(0).add_(1)
    return x * 2


def returns_what_it_wrote(x: Tensor, b: Tensor) -> Any:
    b.mul_(3)
    return x * 2, b[1:], b


def contrasts(w: Tensor, queue: Tensor, at: Tensor, x: Tensor, checks: bool = False) -> Tensor:
    """One step of contrasting with a queue of keys, of which it replaces the oldest."""
    query = F.normalize(x @ w.t() @ w, dim=1)
    with torch.no_grad():
        key = F.normalize(x * 2 + w.sum(), dim=1)
    near, far = (query * key).sum(1, keepdim=True), query @ queue.clone().detach()
    loss = F.cross_entropy(torch.cat([near, far], 1) / 0.2, torch.zeros(4, dtype=torch.long))
    with torch.no_grad():
        place = int(at)
        if checks:
            torch._check(place >= 0)
            torch._check(place + 4 <= queue.shape[1])
        queue[:, place : place + 4] = key.T
        at[0] = (place + 4) % queue.shape[1]
    return loss


class Averaging(nn.Module):
    """Has parameters that follow others, running statistics, a counter and a mean that is assigned again."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.follower, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.follower.requires_grad_(False)
        self.mean: Tensor
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            for p, q in zip(self.layer.parameters(), self.follower.parameters(), strict=True):
                q.data = q.data * 0.9 + p.data * 0.1
        y = self.norm(self.layer(x))
        self.count += 1
        self.mean = self.mean * 0.9 + y.detach().mean(0) * 0.1
        return y.relu() * self.follower(x)


def one(*sizes: int) -> Tensor:
    return torch.ones(sizes)


PROGRAMS: list[tuple[Callable[..., Any], Make, int]] = [
    (gives_other_data, lambda: (leaf(2), torch.zeros(2)), 1),
    (gives_other_data, lambda: (one(2), torch.zeros(3)), 0),
    (gives_a_row, lambda: (one(2), torch.zeros(2, 2)), 0),
    (gives_what_it_computes, lambda: (one(2), one(2, 2)), 0),
    (swaps_data, lambda: (one(2), torch.zeros(2)), 0),
    (sets, lambda: (one(2), torch.zeros(2)), 0),
    (writes_to_data, lambda: (one(2), one(2)), 0),
    (writes_to_data, lambda: (leaf(2), one(2)), 1),
    (writes_without_gradients, lambda: (leaf(2), one(2)), 1),
    (swaps_contents, lambda: (one(2), torch.zeros(2)), 0),
    (rotates_contents, lambda: (one(2), torch.arange(4.0)[:2], torch.arange(2.0)), 0),
    (writes_its_own_transpose, lambda: (torch.arange(4.0).view(2, 2), one(2, 2)), 0),
    (writes_every_other, lambda: (leaf(3), one(6)), 1),
    (writes_to_overlapping, lambda: (leaf(3), (lambda t: (t[:4], t[2:]))(torch.arange(6.0))), 1),
    (writes_other_dtypes, lambda: (torch.zeros(3, dtype=torch.int64), one(3), torch.zeros(3, dtype=torch.bool)), 0),
    (writes_to_parts_of_complex, lambda: (torch.zeros(3, dtype=torch.complex64), one(3)), 0),
    (shrinks, lambda: (one(4),), 0),
    (grows_a_dimension, lambda: (one(4),), 0),
    (returns_what_it_wrote, lambda: (leaf(3), one(3)), 1),
    (contrasts, lambda: (leaf(2, 3), torch.randn(3, 8), torch.tensor([0]), torch.randn(4, 3)), 1),
    (lambda model, x: model(x), lambda: (Averaging(), torch.randn(5, 4)), 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "make", "backward"), PROGRAMS, ids=[f"{p.__name__}-{i}" for i, (p, *_) in enumerate(PROGRAMS)]
)
def test_what_is_written_is_what_eager_writes(
    program: Callable[..., Any], make: Make, backward: int, backends: list[Backend]
) -> None:
    assert_like_eager(program, make, backends, backward)


@pytest.mark.slow
@pytest.mark.parametrize("checks", [False, True], ids=["unchecked", "checked"])
def test_an_item_says_where_a_buffer_is_written_without_a_break(checks: bool) -> None:
    if not checks:
        skip_without(writes_to_unknown_slices)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        w, queue, at, x = leaf(2, 3), torch.randn(3, 8), torch.tensor([0]), torch.randn(4, 3)
        wanted = [t.clone() for t in (queue, at)]
        got = keel.compile(contrasts, backends=[whole()], fullgraph=True)
        for _ in range(3):
            torch.testing.assert_close(got(w, queue, at, x, checks), contrasts(w, *wanted, x))
            torch.testing.assert_close([queue, at], wanted)


def test_a_write_that_autograd_is_to_see_moves_the_version_on_and_a_hidden_one_does_not() -> None:
    def writes(b: Tensor) -> Tensor:
        b.add_(1)
        return b * 2

    def hides(x: Tensor, y: Tensor) -> Tensor:
        x.data = y
        return x * 2

    b, x = torch.ones(2), torch.ones(2)
    keel.compile(writes, backends=[whole()])(b)
    keel.compile(hides, backends=[whole()])(x, b)
    assert (b._version, x._version) == (1, 0)


def test_no_backend_meets_a_write() -> None:
    backend = Seen()
    recorded = Backend(name="recorded", device="*", supports=lambda call: None, compile=backend.compile)
    keel.compile(writes_every_other, backends=[recorded])(leaf(3), torch.ones(6))
    assert backend.graphs and not any("copy_" in name for name in backend.operators)


def test_what_a_mutation_needs_becomes_the_last_results_of_the_graph() -> None:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    new = graph.call_function(aten.add.Tensor, (x, y))
    written = graph.call_function(aten.copy_.default, (x, new))
    graph.output((new, written))
    gm = fx.GraphModule({}, graph)
    mutations = taken_out(gm)
    assert mutations is not None and mutations.inputs == (0,) and mutations.values == 1
    assert [str(n) for n in gm.graph.output_node().args[0]] == ["add_tensor", "x", "add_tensor"]  # type: ignore[union-attr]
    a, b = torch.ones(2), torch.ones(2)
    new, same = mutations.after(lambda args: gm(*args), hidden=False)([a, b])
    assert same is a and torch.equal(a, torch.full((2,), 2.0)) and torch.equal(new, a)


def test_a_graph_without_mutations_stays_as_it_is() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(aten.copy.default, (x, x)),))
    assert taken_out(fx.GraphModule({}, graph)) is None
