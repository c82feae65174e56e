"""PJRT as a backend: what its lowerings compute, whole models, memory that is not copied, indices, options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import keel
from keel_pjrt import backend
from keel_pjrt.rows import ROWS

from ..one_part import check_one_part

jax = pytest.importorskip("jax", reason="jax is not installed: pip install jax")
aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


def test_every_row_has_a_lowering() -> None:
    from keel_pjrt.traced_parts import LOWERINGS, ROOMS

    assert LOWERINGS.keys() == ROWS.keys()
    assert sum(map(len, ROOMS)) == len(LOWERINGS), "no member is lowered in two rooms"


def test_a_model_runs_and_trains() -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)), torch.randn(2, 4)
    run = keel.compile(model, backends=[backend], strict=True)
    with torch.no_grad():
        torch.testing.assert_close(run(x), model(x))
    expected = torch.autograd.grad(model(x).pow(2).sum(), list(model.parameters()))
    gradients = torch.autograd.grad(run(x).pow(2).sum(), list(model.parameters()))
    torch.testing.assert_close(gradients, expected)


def test_results_have_memory_of_their_own() -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        return x.clone(), (y := x + 1), y.clone(), y.t()

    x = torch.randn(3, 4)
    copied, y, again, view = keel.compile(fn, backends=[backend], strict=True)(x)
    assert copied.equal(x) and again.equal(y)
    assert len({t.data_ptr() for t in (x, copied, y, again)}) == 4
    assert view.data_ptr() == y.data_ptr() and view.stride() == (1, 4)


def test_inputs_are_read_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from keel_pjrt.executables import Executable

    addresses: list[tuple[int, int]] = []
    array = Executable.array

    def recorded(self: Executable, x: Tensor) -> Any:
        found = array(self, x)
        addresses.append((found.unsafe_buffer_pointer(), x.data_ptr()))
        return found

    monkeypatch.setattr(Executable, "array", recorded)
    x, y = torch.randn(64, 64), torch.randn(64, 64, dtype=torch.float64)
    keel.compile(lambda x, y: x.exp() + y, backends=[backend], strict=True)(x, y)
    assert addresses and all(ours == theirs for ours, theirs in addresses)


def test_the_settings_of_jax_are_left_alone() -> None:
    before = (jax.config.jax_enable_x64, jax.config.jax_default_matmul_precision)
    result = keel.compile(lambda x: x * 2, backends=[backend], strict=True)(torch.arange(3) + 2**40)
    assert result.tolist() == [2 * (2**40 + n) for n in range(3)]
    assert (jax.config.jax_enable_x64, jax.config.jax_default_matmul_precision) == before


def test_an_index_outside_is_an_error() -> None:
    table = torch.randn(4, 2)
    run = keel.compile(lambda table, at: table[at], backends=[backend], strict=True)
    at = torch.tensor([0, -4, 3])
    assert run(table, at).equal(table[at])
    for wrong in (4, -5):
        with pytest.raises(keel.KeelError, match="bad-index"):
            run(table, torch.tensor([0, wrong, 1]))


def test_sizes_and_layouts_may_change() -> None:
    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return (y := F.softmax(x @ w, -1) + 1), y.t()

    run = keel.compile(fn, backends=[backend], strict=True, dynamic=True)
    for x in (torch.randn(3, 4), torch.randn(4, 9).t(), torch.randn(12, 8)[:, ::2]):
        w = torch.randn(4, 5)
        torch.testing.assert_close(run(x, w), fn(x, w), check_stride=True)


def test_weights_may_be_written_to() -> None:
    model, x = nn.Linear(4, 3), torch.randn(2, 4)
    run = keel.compile(model, backends=[backend], strict=True)
    with torch.no_grad():
        torch.testing.assert_close(run(x), model(x))
        model.weight.mul_(3)
        torch.testing.assert_close(run(x), model(x))
        model.weight.set_(torch.randn(3, 4))
        torch.testing.assert_close(run(x), model(x))


def test_options_are_checked() -> None:
    with pytest.raises(keel.KeelError, match="must be one of 'default'"):
        keel.compile(torch.exp, backends=[backend], options={"pjrt.precision": "fast"})
    with pytest.warns(keel.KeelWarning, match="pjrt could not compile part p0"):
        run = keel.compile(torch.exp, backends=[backend, "eager"], options={"pjrt.platform": "nowhere"})
        run(torch.ones(2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "resnet18"])
def test_a_model_is_one_part(name: str) -> None:
    check_one_part(name, backend)
