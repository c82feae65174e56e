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
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import keel
from keel import Backend
from keel.torch_adapter.mutations import Mutations, taken_out

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


# -- copies in one call --------------------------------------------------------------------------------------

FLOAT, INT, BOOL, COMPLEX = torch.float32, torch.int64, torch.bool, torch.complex64


def copies(*pairs: tuple[Any, Any], aliased: bool = False) -> tuple[Mutations, fx.GraphModule]:
    """The mutations of a graph that copies the negative of the second tensor of each pair to the first, or if
    ``aliased`` a view of the next pair's first.
    """
    graph = fx.Graph()
    targets = [graph.placeholder(f"x{k}") for k in range(len(pairs))]
    given = [graph.placeholder(f"y{k}") for k in range(len(pairs))]
    writes = []
    for k, (target, source) in enumerate(pairs):
        targets[k].meta["val"], given[k].meta["val"] = target, source
        value = graph.call_function(aten.mul.Tensor, (given[k], -1))
        if aliased:
            value = graph.call_function(aten.alias.default, (targets[(k + 1) % len(pairs)],))
        value.meta["val"] = source
        writes.append((targets[k], value))
    graph.output(tuple(graph.call_function(aten.copy_.default, write) for write in writes))
    gm = fx.GraphModule({}, graph)
    mutations = taken_out(gm)
    assert mutations is not None
    return mutations, gm


def calls_of(mutations: Mutations) -> list[tuple[str, int]]:
    """The operators of the program of mutations, each with the number of tensors that it writes."""
    nodes = mutations.program.graph.nodes  # type: ignore[attr-defined]
    return [
        (n.target.__name__, len(n.args[0]) if isinstance(n.args[0], list | tuple) else 1)
        for n in nodes
        if n.op == "call_function"
    ]


def pair(*shape: int, dtype: torch.dtype = FLOAT) -> tuple[Tensor, Tensor]:
    return torch.zeros(shape, dtype=dtype), torch.ones(shape, dtype=dtype)


ONE, MANY = "copy_.default", "_foreach_copy_.default"


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([pair(2), pair(3, 4), pair(0), pair()], [(MANY, 4)]),
        ([pair(2), pair(dtype=INT), pair(3), pair(2, dtype=INT)], [(MANY, 2), (MANY, 2)]),
        ([pair(2), pair(2, dtype=BOOL), pair(2, dtype=torch.bfloat16)], [(ONE, 1)] * 3),
        ([pair(2), (torch.zeros(2), torch.ones(2, dtype=INT)), pair(3)], [(MANY, 2), (ONE, 1)]),
        ([pair(2), (torch.zeros(2), torch.ones(1)), pair(3)], [(MANY, 2), (ONE, 1)]),
        ([pair(2), pair(2, dtype=COMPLEX), pair(2, dtype=COMPLEX)], [(ONE, 1)] * 3),
        ([pair(2), (torch.zeros(2, dtype=COMPLEX).conj().imag, torch.ones(2)), pair(2)], [(MANY, 2), (ONE, 1)]),
        ([pair(2), (torch.zeros(4, 3).t(), torch.ones(3, 4)), pair(2)], [(MANY, 2), (ONE, 1)]),
        ([pair(2), (torch.zeros(4, 3).t(), torch.ones(4, 3).t()), pair(2)], [(MANY, 3)]),
        ([pair(2), (torch.zeros(4)[::2], torch.ones(4)[::2]), pair(2)], [(MANY, 2), (ONE, 1)]),
        ([pair(2), (torch.zeros(2), torch.ones(2, device="meta")), pair(2)], [(MANY, 2), (ONE, 1)]),
    ],
    ids=lambda value: "-".join(map(str, value[0])) if isinstance(value[0][0], str) else "",
)
def test_copies_of_one_dtype_and_device_are_made_in_one_call(
    pairs: list[tuple[Tensor, Tensor]], expected: list[tuple[str, int]]
) -> None:
    mutations, gm = copies(*pairs)
    assert calls_of(mutations) == expected
    if any(t.is_meta for p in pairs for t in p):
        return
    targets, sources = zip(*pairs, strict=True)
    made = [t.clone() if t.is_contiguous() else t for t in targets]
    wanted = [t.clone().copy_(-s.float() if s.dtype == BOOL else s * -1) for t, s in zip(targets, sources, strict=True)]
    mutations.after(lambda args: gm(*args), hidden=False)([*made, *sources])
    torch.testing.assert_close(made, wanted, rtol=0, atol=0)


def test_an_expanded_tensor_is_refused_as_by_eager() -> None:
    mutations, gm = copies(pair(2), (torch.zeros(1).expand(3), torch.ones(1).expand(3)), pair(2))
    assert calls_of(mutations) == [(MANY, 2), (ONE, 1)]
    targets = torch.zeros(2), torch.zeros(1).expand(3), torch.zeros(2)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        mutations.after(lambda args: gm(*args), hidden=False)([*targets, *targets])


def test_copies_of_which_one_reads_what_another_writes_stay_in_their_order() -> None:
    mutations, gm = copies(pair(2), pair(2), aliased=True)
    assert calls_of(mutations) == [("copy_of", 1), (ONE, 1), (ONE, 1)]
    x, y = torch.zeros(2), torch.ones(2)
    mutations.after(lambda args: gm(*args), hidden=False)([x, y, x, y])
    assert x.tolist() == [1, 1] and y.tolist() == [0, 0]


@pytest.mark.parametrize("hidden", [False, True])
def test_copies_in_one_call_move_versions_on_as_single_ones_do(hidden: bool) -> None:
    mutations, gm = copies(pair(2), pair(2))
    tensors = [*pair(2), *pair(2)]
    mutations.after(lambda args: gm(*args), hidden=hidden)(tensors[:])
    assert [t._version for t in tensors] == [int(not hidden)] * 2 + [0] * 2


def test_copies_in_one_call_reach_tensors_of_inference_mode_where_they_may_be_written() -> None:
    mutations, gm = copies(pair(2), pair(2))
    run = mutations.after(lambda args: gm(*args), hidden=True)
    with torch.inference_mode():
        tensors = [*pair(2), *pair(2)]
        run(tensors[:])
        assert tensors[0].tolist() == [0, 0] and tensors[1].tolist() == [-1, -1]
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        run(tensors[:])


@pytest.mark.parametrize(("sizes", "together"), [("nn", True), ("nm", False)])
def test_symbolic_sizes_are_compared_without_a_guard(sizes: str, together: bool) -> None:
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    context = StatelessSymbolicContext([DimDynamic.DYNAMIC])
    rows = {
        name: mode.from_tensor(torch.ones(n), symbolic_context=context, source=ConstantSource(name))
        for n, name in ((5, "n"), (6, "m"))
    }
    mutations, _ = copies(*[(rows[sizes[0]], rows[sizes[1]])] * 2)
    assert calls_of(mutations) == ([(MANY, 2)] if together else [(ONE, 1)] * 2)
    assert not env.guards


class Statistics(nn.Module):
    """Has running statistics and counters of two layers, and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.mask: Tensor
        self.layers = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4))
        self.register_buffer("mask", torch.zeros(4, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        self.mask.copy_(x[0] > 0)
        return self.layers(x).relu()


def test_running_statistics_are_what_eager_has_bit_by_bit() -> None:
    torch.manual_seed(0)
    model, eager, x = Statistics(), Statistics(), torch.randn(6, 4)
    run = keel.compile(model, backends=[whole()])
    for _ in range(2):
        run(x).sum().backward()
        eager(x).sum().backward()
    for (name, got), want in zip(model.named_buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, msg=name)
