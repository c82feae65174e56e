"""Programs whose sizes and numbers are computed from sizes: compiled, they give what eager gives, in types too.

Each runs at several sizes, the first compiled as it stands and the next with symbols, or with symbols from the start.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import keel

from .releases import shifts_by_sizes, skip_without

pytestmark = pytest.mark.slow

Make = Callable[[int], tuple[Any, ...]]
PROGRAMS: dict[str, tuple[Callable[..., Any], Make]] = {}


def program(make: Make) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a program, with its arguments by the number of a call."""

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = function, make
        return function

    return keep


SIZES = (8, 13, 22)
rows = program(lambda k: (torch.randn(SIZES[k]),))
pictures = program(lambda k: (torch.randn(1, 2, SIZES[k], SIZES[k] + 3),))


@program(lambda k: (torch.randn(SIZES[k], 4), torch.randn(5, 2 + k)))
def difference(x: Any, y: Any) -> Any:
    return x[: abs(y.shape[0] - y.shape[1])] * 2


@rows
def bitwise(x: Any) -> Any:
    n = x.shape[0]
    return x * (n & 3), n | 3, n ^ 5, x[: n & 6] + 1, x.new_zeros((n << 1) + (n >> 2)), ~n


@program(lambda k: (torch.ones(2), (10, 3, 7)[k]))
def reciprocal_of_an_argument(x: Any, n: Any) -> Any:
    return x, -1 / n**1.0


@rows
def fractions_of_a_size(x: Any) -> Any:
    n = x.shape[0]
    return x[: int(n * 0.75)] + 1, x[: math.ceil(n * 0.5)] + 2, x.topk(int(n * 0.5)).values, x.new_ones(round(n / 2))


@rows
def rounded(x: Any) -> Any:
    n = x.shape[0]
    return x + round(n / 3, 1), round(n * 0.37), math.trunc(-n * 0.7), int(-n / 3), math.floor(n / 3)


@rows
def quotients(x: Any) -> Any:
    n = x.shape[0]
    return x + (-n // 3), divmod(n, 5), divmod(-n, 4), (3 - n) // 4, n // -3, (n * 0.5) % 3, x[: n % 5] + 1


@rows
def powers(x: Any) -> Any:
    n = x.shape[0]
    return x * n**-0.5, n**0.5, n**-1, n**3, 2**-n, x * math.sqrt(n)


@rows
def extremes(x: Any) -> Any:
    n = x.shape[0]
    return (
        x[: min(n, 10)] * max(n, 9),
        max(n * 0.5, 5.5),
        torch.sym_max(n, 3),
        torch.sym_min(n, 2.5),
        max(3, min(n, 12)),
    )


@rows
def conditions(x: Any) -> Any:
    n = x.shape[0]
    return x * 2 if n > 10 else x + 3, n > 10, n == 13, not n % 2, torch.sym_not(n > 10), (n * 0.5).is_integer()


@rows
def functions(x: Any) -> Any:
    n = x.shape[0]
    return x[: int(math.log2(n))] * math.log2(n), x * math.sin(n), math.cos(n), math.exp(n / 10), math.tanh(n / 9)


@rows
def factors(x: Any) -> Any:
    n = x.shape[0]
    return (
        x * (float(n) / 7),
        n / 7,
        x.sum() / (n - 1),
        torch.full((n,), n / 3),
        torch.full_like(x, n * 0.1),
        torch.full((n // 2,), n > 10),
        x.clamp(-1 / n, 1 / n),
        torch.add(x, x, alpha=n / 3),
    )


@rows
def factors_of_activations(x: Any) -> Any:
    n = x.shape[0]
    return F.leaky_relu(x, 1 / n), F.elu(x, 1 / n), F.hardtanh(x, -n * 0.1, n * 0.1), F.softplus(x, n * 0.1)


@rows
def ranges(x: Any) -> Any:
    n = x.shape[0]
    return torch.arange(n / 2) + x[0], torch.arange(0, n, 3), torch.linspace(0, 1, n) + x, torch.arange(n // 2) * 2.0


@rows
def pieces(x: Any) -> Any:
    n = x.shape[0]
    return [t + 1 for t in x.chunk(3)], [t * 2 for t in x.tensor_split(4)], x.repeat(n // 4), x.unfold(0, n // 3, 2) + 1


@pictures
def resized(x: Any) -> Any:
    return (
        F.interpolate(x, scale_factor=1.5),
        F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
        F.interpolate(x, scale_factor=0.6, mode="bilinear", align_corners=True),
        F.adaptive_avg_pool2d(x, (3, 2)),
    )


@program(lambda k: (torch.randn(2, (9, 21, 16)[k]),))
def padded(x: Any) -> Any:
    return F.pad(x, (0, -x.shape[-1] % 8)) + 1


@program(lambda k: (torch.randn(1, (8, 13, 6)[k], (8, 13, 7)[k], 2),))
def windows(x: Any) -> Any:
    b, h, w, c = x.shape
    p, q = (4 - h % 4) % 4, (4 - w % 4) % 4
    x = F.pad(x, (0, 0, 0, q, 0, p))
    return x.view(b, (h + p) // 4, 4, (w + q) // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)


@program(lambda k: (torch.tensor([(3.0, math.inf, -1.0)[k]]),))
def compared_to_infinity(x: Any) -> Any:
    return x.item() == math.inf


@program(lambda k: (torch.tensor((2.5, -1.25, 3.75)[k]), torch.randn(5)))
def a_float_of_a_tensor(a: Any, x: Any) -> Any:
    return x * a.item(), a.item() * 2 + 1, x + math.floor(a.item())


@program(lambda k: (torch.randn(30), torch.tensor(((7, 14, 9), (10, 12, 8), (1, 9, 20))[k])))
def split_by_a_tensor(x: Any, y: Any) -> Any:
    sizes = y.tolist()
    return [t.sum() for t in torch.split(x, sizes)], sizes[0] + sizes[1] + sizes[2]


def assert_same(value: Any, wanted: Any) -> None:
    """Equal, of the same types, numbers of Python included."""
    assert type(value) is type(wanted)
    if isinstance(wanted, list | tuple):
        assert len(value) == len(wanted)
        for a, b in zip(value, wanted, strict=True):
            assert_same(a, b)
    elif isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(value, wanted)
    else:
        assert value == wanted


@pytest.fixture(autouse=True)
def graphs_hold_numbers() -> Iterator[None]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True), warnings.catch_warnings():
        warnings.simplefilter("error", keel.KeelWarning)  # no part that a backend took and could not compile
        yield
    torch._dynamo.reset()


@pytest.mark.parametrize("dynamic", [None, True], ids=["static first", "dynamic"])
@pytest.mark.parametrize("backends", [("cpp", "eager"), ("interp", "eager")], ids="+".join)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_eager_gives(name: str, backends: tuple[str, ...], dynamic: bool | None) -> None:
    function, make = PROGRAMS[name]
    compiled = torch.compile(function, backend="keel", options={"backends": list(backends)}, dynamic=dynamic)
    for k in range(len(SIZES)):
        torch.manual_seed(k)
        arguments = make(k)
        assert_same(compiled(*arguments), function(*arguments))


@pytest.mark.parametrize(
    "fn",
    [lambda x, n: x + (1 << n), lambda x, n: x * 2**n, lambda x, n: x % (1 << n), lambda x, n: x - 3**n],
    ids=["shift", "power", "remainder", "of three"],
)
@pytest.mark.parametrize("backend", ["cpp", "interp"])
def test_a_number_beyond_int64_is_an_error_as_in_eager(fn: Callable[..., Any], backend: str) -> None:
    """Kernels have it modulo 2^64, which is 0 for a power of two."""
    skip_without(shifts_by_sizes)
    x = torch.arange(4)
    compiled = keel.compile(fn, backends=[backend, "eager"], dynamic=True)
    for n in (5, 30):
        assert torch.equal(compiled(x, n), fn(x, n))
    for n in (64, 70):
        with pytest.raises(OverflowError, match="int too big to convert"):
            fn(x, n)
        with pytest.raises(OverflowError, match="int too big to convert"):
            compiled(x, n)
