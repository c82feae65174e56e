"""Arguments and intermediates whose conjugate or negative PyTorch leaves to their readers to take."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import keel

# PyTorch's own exporter uses what PyTorch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
X = torch.complex(torch.tensor([1.0, 2.0, -3.0]), torch.tensor([4.0, -5.0, 6.0]))
M = torch.complex(torch.arange(12.0).view(3, 4), torch.arange(12.0).view(3, 4) - 5)
BITS: dict[str, Callable[[], Tensor]] = {
    "conjugate": X.conj,
    "negative": lambda: X.conj().imag,
    "part": lambda: X.conj().real,
    "transposed": lambda: M.t().conj(),
    "every second": lambda: M[:, ::2].conj()[1:],
    "none": lambda: M[:0].conj(),
    "expanded": lambda: X.expand(4, 3).conj(),
    "windows": lambda: X.unfold(0, 2, 1).conj().imag,
    "columns": lambda: M.conj().imag[:, 1:],
}


class Raw(nn.Module):
    """Reads memory as it lies, as a kernel does."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        super().__init__()
        self.gm = gm

    def forward(self, *args: Tensor) -> list[Tensor]:
        assert not any(x.is_conj() or x.is_neg() for x in args)
        return list(self.gm(*args))


def refuses_views(call: keel.Call) -> str | None:
    return f"{call.name} is for others." if any(w in call.name for w in ("conj", "view_as", "select", "neg")) else None


raw = keel.Backend(name="raw", device="cpu", supports=refuses_views, compile=Raw)


@pytest.mark.slow
@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("plain_first", [False, True])
def test_an_argument_is_given_as_it_lies(name: str, plain_first: bool) -> None:
    x = BITS[name]()
    go = keel.compile(lambda x: x * 2 + 1, backends=[raw, "eager"], strict=True)
    for given in ([x.clone()] if plain_first else []) + [x]:
        torch.testing.assert_close(go(given), given * 2 + 1)


@pytest.mark.parametrize(
    "fn",
    [lambda x: x.conj() * 2, lambda x: x.conj().imag + 1, lambda x: (x * 2).conj().imag * 3],
    ids=["conjugate", "negative", "negative of an intermediate"],
)
def test_what_another_part_leaves_to_be_taken_is_taken(fn: Callable[[Tensor], Tensor]) -> None:
    torch.testing.assert_close(keel.compile(fn, backends=[raw, "eager"], strict=True)(X), fn(X))


@pytest.mark.slow
@pytest.mark.parametrize("name", BITS)
def test_exported_programs_and_calls_take_them(name: str) -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    x = BITS[name]()
    program = torch.export.export(Twice(), (x.clone(),))
    torch.testing.assert_close(keel.compile_exported(program, backends=[raw, "eager"])(x), x * 2)
    mul = torch.ops.aten.mul.Tensor
    batch = keel.testing.compile_calls([(mul, (x, x), {})], backends=[raw, "eager"])
    torch.testing.assert_close(batch.run([((x, x), {})])[0][0], x * x)


def test_a_result_that_eager_leaves_unconjugated_has_its_values_and_strides() -> None:
    def fn(z: Tensor) -> Tensor:
        return (z * 2).mH

    ours, eager = keel.compile(fn, backends=["interp", "eager"], placement="order")(M), fn(M)
    assert eager.is_conj() and not ours.is_conj()
    assert torch.equal(ours, eager) and ours.stride() == eager.stride() and ours.resolve_conj() is ours
