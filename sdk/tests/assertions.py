"""Programs that assert what only a run tells, each with inputs that keep it and inputs that break it, and a backend
that notices when it is given, or comes by, a value that does not have the type that was promised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import Tensor, fx, tensor

from keel import Backend
from keel.graph.calls import type_of
from keel.loops.symbolic_sizes import evaluate
from keel.torch_adapter.higher_order import while_loop
from keel.types import TensorType

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Program:
    """``fn`` returns one tensor of ``kept``, and raises of ``broken``."""

    fn: Callable[..., Tensor]
    kept: Inputs
    broken: Inputs


PROGRAMS: dict[str, Program] = {}


def program(kept: Inputs, broken: Inputs) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    def added(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
        PROGRAMS[fn.__name__] = Program(fn, kept, broken)
        return fn

    return added


COUNTS, NONE = tensor([0, 1, 3, 4, 2, 0, 0]), torch.zeros(7, dtype=torch.int64)
FOUR, FIVE = tensor([1.0, 2, 3, 4, 0]), torch.ones(5)


@program((COUNTS,), (NONE,))
def places(x: Tensor) -> Tensor:
    z = x.nonzero()
    torch._check(z.size(0) == 4)
    return z + 3


@program((COUNTS,), (NONE,))
def used_before(x: Tensor) -> Tensor:
    z = x.nonzero()
    y = z * 2
    torch._check(z.size(0) == 4)
    return y + 3


@program((COUNTS,), (NONE,))
def not_used(x: Tensor) -> Tensor:
    torch._check(x.nonzero().size(0) == 4, lambda: "There are four.")
    return x + 1


@program((FOUR,), (FIVE,))
def masked(x: Tensor) -> Tensor:
    z = x[x > 0]
    torch._check(z.numel() == 4)
    return z + 3


@program((FOUR,), (FIVE,))
def masked_in_rows(x: Tensor) -> Tensor:
    z = x[:, None].expand(x.shape[0], 3)[x > 0]
    torch._check(z.size(0) == 4)
    return z.t() @ z


@program((FOUR,), (FIVE,))
def selected(x: Tensor) -> Tensor:
    z = torch.masked_select(x, x > 0)
    torch._check(z.numel() == 4)
    return z.view(2, 2) @ z.view(2, 2)


@program((tensor([1, 2, 3, 3]),), (tensor([1, 2, 3, 4]),))
def distinct(x: Tensor) -> Tensor:
    values, counts = torch.unique(x, return_counts=True)
    torch._check(counts.numel() == 3)
    return values * counts


@program((COUNTS,), (torch.ones(7, dtype=torch.int64),))
def found_where(x: Tensor) -> Tensor:
    (z,) = torch.where(x > 0)
    torch._check(z.shape[0] == 4)
    return x[z] + z


@program((tensor([1, 2, 1]),), (tensor([1, 2, 4]),))
def repeated(x: Tensor) -> Tensor:
    y = torch.repeat_interleave(x)
    torch._check(y.size(0) == 4)
    return y + 1


@program((tensor([2, 3]), torch.ones(5)), (tensor([2, 400_000]), torch.ones(5)))
def split(x: Tensor, w: Tensor) -> Tensor:
    a, b = x.tolist()
    torch._check(a >= 0)
    torch._check(b >= 0)
    torch._check(a + b == w.shape[0])
    p, q = w.split([a, b])
    return p.sum() * 2 + q.sum()


@program((tensor([2, 1]), torch.ones(5)), (tensor([2, 4_000_000]), torch.ones(5)))
def sliced(x: Tensor, w: Tensor) -> Tensor:
    n = x.sum().item()
    torch._check(n >= 0)
    torch._check(n <= 5)
    return (w[:n] * 2).sum()


@program((tensor([2, 1]), torch.ones(5)), (tensor([2, 4_000_000]), torch.ones(5)))
def sliced_before(x: Tensor, w: Tensor) -> Tensor:
    n = x.sum().item()
    torch._check(n >= 0)
    y = w[:n]
    torch._check(n <= 5)
    return y.sum() + y.shape[0]


@program((tensor([2, 1]), torch.ones(5)), (tensor([1, 4_000_000]), torch.ones(5)))
def narrowed(x: Tensor, w: Tensor) -> Tensor:
    n = x.max().item()
    torch._check_is_size(n)
    torch._check(n < w.shape[0])
    return w.narrow(0, n, 1) + n


@program((tensor([1.0, 0, 3, 1]),), (tensor([1.0, 0, 3, 4]),))
def the_only_one(x: Tensor) -> Tensor:
    return x + x.sum() * x[x > 2].item()


@program((tensor([2, 1]), torch.ones(5)), (tensor([2, 4_000_000]), torch.ones(5)))
def selected_at(x: Tensor, w: Tensor) -> Tensor:
    n = x.sum().item()
    torch._check(n >= 0)
    torch._check(n < 5)
    return w[n] + 1


@program((tensor([2, 1]),), (tensor([4, 1]),))
def number(x: Tensor) -> Tensor:
    n = x.sum().item()
    torch._check(n == 3)
    return torch.zeros(n) + 1


@program((tensor([2, 1]), tensor([6])), (tensor([4, 1]), tensor([6])))
def number_of_number(x: Tensor, y: Tensor) -> Tensor:
    n, m = x.sum().item(), y.sum().item()
    torch._check(n >= 0)
    torch._check(m >= 0)
    torch._check(2 * n == m)
    return torch.zeros(n, 2).view(m) + torch.ones(m)


@program((tensor([1, 1, 0, 0]), tensor([1, 1, 1, 1, 0])), (tensor([1, 1, 0, 0]), tensor([1, 1, 1, 1, 1])))
def twice_as_many(x: Tensor, y: Tensor) -> Tensor:
    a, b = x.nonzero(), y.nonzero()
    torch._check(b.size(0) == 2 * a.size(0))
    return b.view(-1, 2) + a


@program((tensor([1, 1, 1, 1, 0]), tensor([1, 1, 0, 0])), (tensor([1, 1, 1, 1, 0]), tensor([1, 1, 1, 0])))
def half_as_many(x: Tensor, y: Tensor) -> Tensor:
    a, b = x.nonzero(), y.nonzero()
    torch._check(a.size(0) == 2 * b.size(0))
    return a.view(-1, 2) + b


@program((tensor([1, 1, 1, 0, 0]), tensor([1, 1, 0, 1])), (tensor([1, 1, 1, 1, 0]), tensor([1, 1, 1, 0])))
def as_many(x: Tensor, y: Tensor) -> Tensor:
    a, b = x.nonzero(), y.nonzero()
    torch._check(a.size(0) == b.size(0))
    return a + b


@program((tensor([1.0, 1, 1, 0]), torch.ones(3)), (tensor([1.0, 1, 1, 1]), torch.ones(3)))
def as_many_as_given(x: Tensor, y: Tensor) -> Tensor:
    a = x[x > 0]
    torch._check(a.size(0) == y.size(0))
    return a + y


@program((tensor([True, False]),), (tensor([False, False]),))
def truth(x: Tensor) -> Tensor:
    torch._check(x.any().item())
    return x + 1


@program((tensor([1.0, 1.5]),), (tensor([1.0, 1.0]),))
def real(x: Tensor) -> Tensor:
    torch._check(x.sum().item() == 2.5)
    return x + 1


@program((tensor([1.0, 1.5]),), (tensor([0.0, 1.0]),))
def without_a_message(x: Tensor) -> Tensor:
    torch._assert_async((x > 0).all())
    return x + 1


@program((tensor([1, 2]), torch.arange(5.0)), (tensor([1, 7]), torch.arange(5.0)))
def indices(i: Tensor, w: Tensor) -> Tensor:
    torch._assert_async((i < 5).all(), "They are in range.")
    return w[i] + 1


@program((tensor([1, 2]), torch.arange(5.0)), (tensor([1, 7]), torch.arange(5.0)))
def greatest_index(i: Tensor, w: Tensor) -> Tensor:
    torch._check(i.max().item() < 5)
    return w[i] + 1


@program((torch.eye(2),), (torch.zeros(2, 2),))
def inverse(x: Tensor) -> Tensor:
    return torch.linalg.inv(x) + 1


@program((FOUR, tensor(True)), (FIVE, tensor(True)))
def in_a_branch(x: Tensor, p: Tensor) -> Tensor:
    def some(x: Tensor) -> Tensor:
        z = x[x > 0]
        torch._check(z.numel() == 4)
        return (z + 1).sum()

    return torch.cond(p, some, lambda x: x.sum(), (x,))


@program((FOUR,), (FIVE,))
def in_a_loop(x: Tensor) -> Tensor:
    def body(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = x[x > 0]
        torch._check(z.numel() == 4)
        return i + 1, y + z.sum()

    start = torch.zeros((), dtype=torch.int64), torch.zeros(())
    result: Tensor = while_loop(lambda i, y: i < 2, body, start)[1]
    return result


@torch.library.custom_op("keel_assertions::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return x[x > 0].repeat(2)


@doubled.register_fake
def _(x: Tensor) -> Tensor:
    count = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty(2 * count)


@program((FOUR,), (FIVE,))
def of_the_users_operator(x: Tensor) -> Tensor:
    z = doubled(x)
    torch._check(z.size(0) == 8)
    return z * torch.arange(8.0)


# -- a backend that trusts types ---------------------------------------------------------------------------------------


def trusting(broken: list[str], name: str = "trusting", last_resort: bool = False) -> Backend:
    """Takes everything but assertions, as a compiler would that makes code for the types that it is given; notes in
    ``broken`` each value that does not have its type.
    """

    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        return lambda *args: _Trusting(gm, broken).run(*args)

    def supports(call: Any) -> str | None:
        return "It asserts nothing." if "assert" in call.name or "constrain" in call.name else None

    return Backend(name=name, device="*", supports=supports, compile=compile, last_resort=last_resort)


class _Trusting(fx.Interpreter):
    def __init__(self, gm: fx.GraphModule, broken: list[str]) -> None:
        super().__init__(gm)
        self.broken = broken
        self.sizes: dict[str, int] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(said := n.meta.get("val"), Tensor) and isinstance(value, Tensor):
            type = type_of(said)
            assert isinstance(type, TensorType)
            if not all(_is(dim, size, self.sizes) for dim, size in zip(type.shape, value.shape, strict=True)):
                self.broken.append(f"%{n.name} has the sizes {list(value.shape)}, not {list(type.shape)}.")
        return value


def _is(dim: Any, size: int, sizes: dict[str, int]) -> bool:
    """Whether a size is what its type says; a symbol that comes up first is what it says."""
    if isinstance(dim, sympy.Symbol):
        return sizes.setdefault(str(dim), size) == size
    return bool(not _known(dim, sizes) or evaluate(dim, sizes) == size)


def _known(dim: Any, sizes: Mapping[str, int]) -> bool:
    return isinstance(dim, int) or all(str(s) in sizes for s in dim.free_symbols)
