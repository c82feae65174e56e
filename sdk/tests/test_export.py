"""Exported programs: values, writes, aliases, and arguments that do not fit."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, export

import keel
from keel import Backend, KeelError

from .line import LITTLE, Seen, takes, whole

# PyTorch's own exporter uses what PyTorch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
R = torch.randn
BACKENDS = {"whole": [whole()], "little": [takes(*LITTLE, name="little"), whole("rest", last_resort=True)]}


@pytest.fixture(params=BACKENDS)
def backends(request: pytest.FixtureRequest) -> list[Backend]:
    return BACKENDS[request.param]


class Counts(nn.Module):
    """Writes buffers and an input, returns views, constants and a nest."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 5), nn.BatchNorm1d(5)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("table", R(5), persistent=False)

    def forward(self, x: Tensor, more: dict[str, Tensor], *, times: int = 3) -> Any:
        self.calls += 1
        y = F.gelu(self.norm(self.linear(x))) * self.table * times + torch.tensor([2.0] * 5)
        more["a"].add_(1)
        return {
            "y": y.softmax(-1),
            "flat": y.view(-1),
            "x": x.view(-1),
            "none": None,
            "n": x.shape[0] * 2,
            "a": more["a"],
            "calls": self.calls,
        }


def arguments(n: int) -> tuple[Tensor, dict[str, Tensor]]:
    return R(n, 4), {"a": R(2)}


@pytest.fixture
def model() -> Counts:
    torch.manual_seed(0)
    return Counts()


def exported(model: nn.Module) -> Any:
    sizes = {"x": {0: Dim("n", min=2, max=64)}, "more": {"a": None}, "times": None}
    return export(model, arguments(3), {"times": 3}, dynamic_shapes=sizes)


@pytest.mark.slow
def test_results_writes_and_aliases_are_the_models(model: Counts, backends: list[Backend]) -> None:
    twin = copy.deepcopy(model)
    run = keel.compile_exported(exported(model), backends=backends)
    for n in (3, 5):
        given = arguments(n)
        wanted = copy.deepcopy(given)
        got, want = run(*given, times=3), twin(*wanted, times=3)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(given, wanted)
        assert got["a"] is given[1]["a"]
        assert got["x"].data_ptr() == given[0].data_ptr()
        assert got["calls"] is dict(model.named_buffers())["calls"]
    torch.testing.assert_close(dict(model.state_dict()), dict(twin.state_dict()))


@pytest.mark.slow
def test_parameters_loaded_in_place_take_effect(model: Counts) -> None:
    run = keel.compile_exported(exported(model), backends=[whole()])
    x, more = arguments(3)
    before = run(x, more, times=3)["y"]
    model.load_state_dict(Counts().state_dict())
    assert not torch.equal(run(x, more, times=3)["y"], before)


@pytest.mark.slow
def test_arguments_with_other_strides_are_copied(model: Counts, backends: list[Backend]) -> None:
    model.eval()
    run = keel.compile_exported(export(model, arguments(3), {"times": 3}), backends=backends)
    x, more = R(4, 3).t(), {"a": R(4)[::2]}
    wanted = copy.deepcopy(more)
    want = F.gelu(model.norm(model.linear(x))) * model.table * 3 + 2
    torch.testing.assert_close(run(x, more, times=3)["y"], want.softmax(-1))
    torch.testing.assert_close(more["a"], wanted["a"] + 1)


class Doubles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def test_an_argument_may_repeat_what_the_example_was_expanded_from() -> None:
    row = R(1, 4)
    run = keel.compile_exported(export(Doubles(), (R(1, 4).expand(3, 4),)), backends=[whole()])
    for x in (row.expand(3, 4), row.repeat(3, 1), row.t().repeat(1, 3).t()):
        torch.testing.assert_close(run(x), x * 2)
    with pytest.raises(KeelError, match=r"x: Its elements differ along dimension 0") as raised:
        run(R(3, 4))
    assert raised.value.code == "bad-input"


class Swaps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.ones(2))
        self.register_buffer("b", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        a = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(a)
        return x + self.a


def test_buffers_can_swap() -> None:
    model = Swaps()
    run = keel.compile_exported(export(model, (R(2),)), backends=[whole()])
    run(R(2))
    assert model.a.tolist() == [0, 0] and model.b.tolist() == [1, 1]


def test_a_composite_stays_whole_for_who_takes_it() -> None:
    seen = Seen()
    program = export(nn.Sequential(nn.Linear(4, 5), nn.Softmax(-1)), (R(3, 4),))
    acme = takes("aten.linear.default", "aten.softmax.int", name="acme", compile=seen.compile)
    keel.compile_exported(program, backends=[acme, whole()])
    assert seen.operators == ["aten.linear.default", "aten.softmax.int"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoil",
    [
        lambda x, more: ((R(3, 5), more), {"times": 3}),
        lambda x, more: ((R(1, 4), more), {"times": 3}),
        lambda x, more: ((x.double(), more), {"times": 3}),
        lambda x, more: ((3, more), {"times": 3}),
        lambda x, more: ((x, more), {"times": 4}),
        lambda x, more: ((x, more), {}),
        lambda x, more: ((x, more), {"times": 3, "often": 1}),
        lambda x, more: ((x, {"b": R(2)}), {"times": 3}),
    ],
    ids=["shape", "range", "dtype", "no tensor", "number", "missing", "extra", "nest"],
)
def test_arguments_that_do_not_fit_are_refused(
    model: Counts, spoil: Callable[..., Any], golden: Callable[..., None]
) -> None:
    run = keel.compile_exported(exported(model), backends=[whole()])
    args, kwargs = spoil(*arguments(3))
    with pytest.raises(KeelError) as raised:
        run(*args, **kwargs)
    golden(re.sub(r"\bs\d+", "size", str(raised.value)))


@pytest.mark.slow
def test_a_program_with_a_loss_is_refused(golden: Callable[..., None]) -> None:
    from torch.export.experimental import _export_forward_backward

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x).sum()

    program = _export_forward_backward(export(Loss(), (R(3, 4),)))
    with pytest.raises(KeelError) as raised:
        keel.compile_exported(program, backends=[whole()])
    golden(str(raised.value))


class WritesAndViews(nn.Module):
    """Writes a buffer and an input, and returns views of them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 3))

    def forward(self, x: Tensor) -> Any:
        self.total += x
        x.mul_(2)
        return self.total.t(), self.total.t()[0], x.view(-1)[2:], self.total.sum(0)


def test_views_of_written_tensors_share_their_memory(backends: list[Backend]) -> None:
    program, x = export(WritesAndViews(), (torch.ones(2, 3),)), torch.ones(2, 3)
    turned, row, rest, total = keel.compile_exported(program, backends=backends)(x)
    assert turned.sum() == 6 and rest.sum() == 8
    program.state_dict["total"].fill_(7)
    x.fill_(9)
    assert turned.sum() == 42 and row.tolist() == [7, 7] and rest.sum() == 36 and total.tolist() == [2, 2, 2]


def test_assertions_about_types_do_not_cut_the_graph() -> None:
    def fn(x: Tensor) -> Tensor:
        return x.to(torch.float64).to(torch.float32).relu()  # torch.export asserts the dtype before each conversion

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return fn(x)

    compiled: list[str] = []
    backend = takes("relu", "_to_copy", name="casts")
    counting = replace(backend, compile=lambda gm: (compiled.append("part"), gm.forward)[1])
    x = R(3)
    assert torch.equal(
        keel.compile_exported(export(Model(), (x,)), backends=[counting, whole("rest", last_resort=True)])(x), fn(x)
    )
    assert compiled == ["part"]


class Sums(nn.Module):
    def forward(self, x: Tensor, n: int) -> Tensor:
        return x.sum(0) + n


def test_arguments_that_fitted_do_not_make_others_fit() -> None:
    shapes = {"x": {0: Dim("rows", min=2, max=5)}, "n": None}
    compiled = keel.compile_exported(export(Sums(), (R(3, 4), 2), dynamic_shapes=shapes), backends=[whole()])
    for _ in range(2):
        for x in (R(3, 4), R(5, 4), R(4, 4).t().contiguous().t(), R(3, 8)[:, ::2]):
            torch.testing.assert_close(compiled(x, 2), x.sum(0) + 2)
        for wrong in ((R(6, 4), 2), (R(3, 4).double(), 2), (R(3, 5), 2), (R(3, 4), 3), (R(3, 4), 2.0), ([1.0], 2)):
            with pytest.raises(KeelError, match="bad-input"):
                compiled(*wrong)


def test_a_number_below_its_range_is_refused() -> None:
    class Adds(nn.Module):
        def forward(self, x: Tensor, n: int) -> Tensor:
            torch._check(n >= 0)
            return x + n

    program = export(Adds(), (R(3), 2), dynamic_shapes={"x": None, "n": Dim.DYNAMIC})
    compiled = keel.compile_exported(program, backends=[whole()])
    assert torch.equal(compiled(torch.zeros(3), 3), torch.full((3,), 3.0))
    with pytest.raises((KeelError, RuntimeError)):
        compiled(torch.zeros(3), -1)
