"""What the actions of a sequence act on: compiled programs, weights, arguments, results that are held, and facts.

A world is made twice, once with the backend's compiler and once in eager PyTorch, and the same actions are done in
both. Its numbers are small integers and halves, so that every result is exact.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

from ..devices import HOST
from .context import ZONE, Context, Memories

ROWS, WIDTH, OUT = 5, 4, 3
HELD = 6
"""Calls whose results are held, and looked at after each action."""
FACTORS = {"layer": 1.5, "twin": 1.5, "literal": 1.25, "near": 1.5 + 2.0**-10}
"""The programs that differ in one thing: the weights, which the twin has frozen, or a literal."""


ANY_ACTION = tuple(
    f"contract.{clause}"
    for clause in (
        "calls.C2",
        "mutation.C1",
        "layouts.C1",
        "layouts.C4",
        "aliases.C4",
        "gradients.C5",
        "modes.C2",
        "dtypes.C4",
        "random.C7",
        "lifetimes.C2",
        "errors.C1",
    )
)
"""Clauses that any action can show to be broken."""


class Layer(nn.Module):
    """Weights that a program closes over."""

    def __init__(self, ctx: Context):
        super().__init__()
        self.weight = nn.Parameter(ctx.ints(OUT, WIDTH, low=-2, high=3))
        self.bias = nn.Parameter(ctx.ints(OUT, low=-2, high=3))


def layer(module: Layer, factor: float, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = x @ module.weight.to(x.dtype).t() + module.bias.to(x.dtype)
    if module.training:
        y = y * 2
    return y.relu() * factor, y > 0, y.sum(0)


def rows(x: Tensor, m: Tensor) -> tuple[Tensor, ...]:
    return x * 2 - m, x.sum(0), x > m, x[1:] + 1, x.t()


def write(x: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
    before = buffer * 2
    buffer.copy_(x.sum(0) - buffer.sign())
    return before, buffer + 1


def draw(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.rand_like(x), x * 2


def product(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b).relu() + 1


def scaled(x: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    return x * factor, x + factor


def pick(table: Tensor, places: Tensor) -> Tensor:
    return (table * 2).index_select(0, places) + 1


def with_code_of_its_own(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``fn`` as a function that Dynamo compiles apart from others. It counts the recompilations of a code object, and
    takes a number for a variable if functions of the same name have different ones.
    """
    code = fn.__code__.replace(co_name=name, co_qualname=name)
    return FunctionType(code, fn.__globals__, name, fn.__defaults__, fn.__closure__)


def closed_over(module: Layer, factor: float, name: str) -> Callable[[Tensor], Any]:
    return with_code_of_its_own(lambda x: layer(module, factor, x), name)


PLAIN: Mapping[str, Callable[..., Any]] = {fn.__name__: fn for fn in (rows, write, draw, product, scaled, pick)}
"""Programs without weights."""


class World:
    """``held`` has the results of the last calls, ``pending`` forward passes whose backward pass is still to come.
    ``changed`` has the programs whose weights have changed since their last call, with the clause on that.
    """

    def __init__(self, ctx: Context):
        self.ctx = ctx
        self.title, self.clause = "", ""
        first, frozen = Layer(ctx), Layer(ctx).requires_grad_(False)
        self.modules = {name: frozen if name == "twin" else first for name in FACTORS}
        self.programs = {
            **{name: ctx.compile(closed_over(self.modules[name], factor, name)) for name, factor in FACTORS.items()},
            **{n: ctx.compile(with_code_of_its_own(fn, n)) for n, fn in PLAIN.items()},
        }
        self.changed: dict[str, str] = {}
        self.memory = ctx.ints(ROWS * WIDTH + 2 * ZONE)
        self.argument = ctx.ints(ROWS, WIDTH)
        self.buffer = ctx.ints(WIDTH)
        self.held: deque[list[Tensor]] = deque(maxlen=HELD)
        self.pending: deque[tuple[Tensor, list[Tensor]]] = deque()
        self.draws: deque[Tensor] = deque(maxlen=8)
        self.streams: dict[str, Tensor] = {}

    @property
    def module(self) -> Layer:
        """The one whose weights are written."""
        return self.modules["layer"]

    def weights_change(self, clause: str = "contract.models.C3") -> None:
        """Gives up forward passes that wait, since their backward passes would read the weights."""
        self.pending.clear()
        self.changed = {name: clause for name in FACTORS if self.modules[name] is self.module}

    def x(self, n: int = ROWS) -> Tensor:
        """A fresh argument."""
        return self.ctx.ints(n, WIDTH)

    def m(self) -> Tensor:
        return self.ctx.ints(WIDTH)

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, program: str, *args: Tensor, hold: bool = True) -> list[Tensor]:
        """Calls the program and tells what it gave, and what became of its arguments. A wrong value after a change of
        the weights breaks the clause on that.
        """
        self.clause = self.changed.pop(program, self.clause)
        with self.settings_stay():
            results = listed(self.programs[program](*args))
        self.tell(results, args)
        if hold:
            self.held.append(results)
        return results

    def raises(self, program: str, *args: Tensor) -> None:
        """Tells whether the program raises."""
        raised = False
        with self.settings_stay():
            try:
                self.programs[program](*args)
            except Exception:
                raised = True
        self.must("it raises", raised, "contract.errors.C1")

    @contextmanager
    def settings_stay(self) -> Iterator[None]:
        """Tells whether what holds for the process, and for the thread, holds afterwards."""
        before = settings()
        yield
        after = settings()
        if after != before:
            self.must(f"the settings {before} stay, which are {after}", False, "contract.modes.C2")

    def tell(self, results: Sequence[Tensor], args: Sequence[Tensor] = ()) -> None:
        """Tells all about the results, each aspect of all of them as one fact."""
        inputs = Memories([(f"argument[{k}]", x) for k, x in enumerate(args)])
        aspects: list[tuple[str, str, Callable[[Tensor], Any]]] = [
            ("types of results", "contract.layouts.C4", lambda x: [str(x.dtype), list(x.shape)]),
            ("values of results", self.clause, numbers),
            ("strides of results", "contract.layouts.C1", strides),
            ("results that require a gradient", "contract.gradients.C5", lambda x: x.requires_grad),
            ("results that are inference tensors", "contract.modes.C1", lambda x: x.is_inference()),
            ("what results share memory with", "contract.aliases.C4", inputs.shared),
        ]
        for name, clause, aspect in aspects:
            self.fact(name, [aspect(x) for x in results], clause)
        self.fact("arguments afterwards", [numbers(x) for x in args], "contract.mutation.C1")
        if not all(bytes_are_bits(x) for x in results if x.dtype == torch.bool):
            self.must("results of bool have the bytes 0 and 1 alone", False, "contract.dtypes.C4")

    # -- facts -------------------------------------------------------------------------------------------------------

    def fact(self, name: str, value: Any, clause: str = "") -> None:
        self.ctx.facts.append((f"{self.title}: {name}", clause or self.clause, value))

    def must(self, name: str, holds: bool, clause: str = "") -> None:
        self.ctx.facts.append((f"must: {self.title}: {name}", clause or self.clause, bool(holds)))

    def look(self) -> None:
        """Tells what is held, as numbers that follow from the values: earlier results, weights, and the memory that
        arguments lie in.
        """
        self.fact("held results", [digest(results) for results in self.held], "contract.calls.C2")
        self.fact("results that wait", [digest(results) for _, results in self.pending], "contract.calls.C2")
        owned = digest([*self.module.parameters(), self.memory, self.argument, self.buffer])
        self.fact("weights and arguments", owned, "contract.mutation.C1")

    # -- random numbers ----------------------------------------------------------------------------------------------

    def set_random_state(self, state: Tensor) -> None:
        if self.ctx.device == HOST:
            torch.set_rng_state(state)
        else:
            torch.get_device_module(self.ctx.device).set_rng_state(state)

    def drawn(self) -> Tensor:
        """What the program draws: new numbers of its range, and the generator has moved on."""
        state = self.ctx.random_state()
        numbers_drawn, double = listed(self.programs["draw"](x := self.ctx.ints(8, 16)))
        self.must("the generator moves on", not torch.equal(state, self.ctx.random_state()), "contract.random.C9")
        self.must(
            "its numbers are in [0, 1)", bool(((numbers_drawn >= 0) & (numbers_drawn < 1)).all()), "contract.random.C7"
        )
        self.fact("what is not drawn", [numbers(double), numbers(x)], "contract.calls.C1")
        return numbers_drawn.clone()

    def differs_from_earlier(self, fresh: Tensor) -> None:
        """Tells whether the numbers are others than those drawn before, wherever these stand: streams may overlap."""
        own = fresh.to(HOST)
        repeated = [k for k, before in enumerate(self.draws) if bool(torch.isin(own, before).double().mean() > 0.1)]
        self.must(f"other numbers than in the last {len(self.draws)} draws", not repeated, "contract.random.C2")
        self.draws.append(own)

    def same_as_first(self, stream: str, fresh: Tensor) -> None:
        """Tells whether the numbers are those of the first draw from this state of the generator."""
        known = self.streams.setdefault(stream, fresh)
        self.must("the numbers of the first draw from this state", torch.equal(known, fresh), "contract.random.C1")

    # -- lifetimes ---------------------------------------------------------------------------------------------------

    def dies(self, what: str, memory: Sequence[weakref.ref[Any]], clause: str) -> None:
        """Tells whether memory that the caller has dropped is free."""
        self.must(f"the memory of {what} is free", all(one() is None for one in memory), clause)


def listed(results: Any) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else list(results)


def numbers(x: Tensor) -> Any:
    """The values as plain data."""
    return x.detach().tolist()


def strides(x: Tensor) -> list[int]:
    """Those of dimensions of more than one element."""
    return [s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1] if x.numel() else []


def digest(tensors: Sequence[Tensor]) -> int:
    """A number that is another one if a value is another one."""
    return crc32(repr([numbers(x) for x in tensors]).encode())


def memory_of(x: Tensor) -> weakref.ref[Any]:
    """A reference to its memory, which does not keep that alive."""
    return weakref.ref(x.untyped_storage())


def bytes_are_bits(x: Tensor) -> bool:
    return bool((x.detach().view(torch.uint8) <= 1).all())


def settings() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        bool(torch.full((), 1e-310, dtype=torch.float64, device="cpu") * 0.5 > 0),
    )
