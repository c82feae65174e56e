"""What a contract program is given: values to work on, a compiler, and a way to tell what it saw.

The same program runs in the process of the backend, with the backend's compiler, and in the one that judges, where
``compile`` is the identity. Its values follow from the seed alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..devices import HOST
from .observation import Fact, layout, leaves, same, snapshot

ZONE = 16
"""Elements before and after an argument that lies in the middle of a larger memory, and what they hold."""
MARK = 77


@dataclass
class Context:
    """``compiler(fn, dynamic=..., without=...)`` gives the program to call. ``wide`` makes every float64 of what would
    be float32: the reference of programs whose results are rounded. All tensors are on ``device``; values are drawn on
    the host, and are the same wherever they go.
    """

    compiler: Callable[..., Callable[..., Any]]
    clause: str
    seed: int = 0
    calls: int = 3
    wide: bool = False
    device: str = HOST
    facts: list[Fact] = field(default_factory=list)
    results: list[tuple[str, Tensor]] = field(default_factory=list)
    runs: int = 0

    def __post_init__(self) -> None:
        self.draw = torch.Generator(HOST).manual_seed(self.seed)

    # -- values ------------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        """Of floats that nobody gave another."""
        return torch.float64 if self.wide else torch.float32

    def ints(self, *shape: int, low: int = -4, high: int = 5, dtype: torch.dtype | None = None) -> Tensor:
        """Small integers, floats unless ``dtype`` says otherwise: their sums and products are exact in any order."""
        return self.to_device(torch.randint(low, high, shape, generator=self.draw, device=HOST), dtype or self.dtype)

    def normal(self, *shape: int) -> Tensor:
        return self.to_device(torch.randn(shape, generator=self.draw, device=HOST), self.dtype)

    def indices(self, below: int, *shape: int) -> Tensor:
        return self.to_device(torch.randint(0, below, shape, generator=self.draw, device=HOST))

    def bools(self, *shape: int) -> Tensor:
        return self.to_device(torch.randint(0, 2, shape, generator=self.draw, device=HOST) > 0)

    def permutation(self, n: int) -> Tensor:
        """The numbers below ``n``, in an order drawn."""
        return self.to_device(torch.randperm(n, generator=self.draw, device=HOST))

    def to_device(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """``x`` on the device."""
        return x.to(self.device, dtype or x.dtype)

    def integer_params(self, module: nn.Module, low: int = -2, high: int = 3) -> nn.Module:
        """The module with small integers as floating parameters."""
        with torch.no_grad():
            for p in module.parameters():
                p.copy_(self.ints(*p.shape, low=low, high=high))
        return module.double() if self.wide else module

    def normal_params(self, module: nn.Module) -> nn.Module:
        """The module with normal parameters of the size that its layers want."""
        with torch.no_grad():
            for p in module.parameters():
                p.copy_(self.normal(*p.shape) / max(1, p[0].numel() if p.dim() > 1 else 4) ** 0.5)
        return module.double() if self.wide else module

    def inside_larger_storage(self, x: Tensor) -> Tensor:
        """``x``'s values in the middle of a larger memory, not aligned, that is marked before and after them."""
        memory = torch.full((x.numel() + 2 * ZONE,), MARK, dtype=x.dtype, device=x.device)
        place = memory[ZONE - 1 : ZONE - 1 + x.numel()].view(x.shape)
        place.copy_(x)
        return place

    # -- running -----------------------------------------------------------------------------------------------------

    def compile(self, fn: Callable[..., Any], **how: Any) -> Callable[..., Any]:
        return self.compiler(fn, **how)

    def rounds(self) -> Iterator[int]:
        """The calls of the program: three at least."""
        return iter(range(self.calls))

    def record(self, name: str, value: Any, clause: str = "", *, strides: bool = True) -> None:
        """Tells a fact: nested tensors, numbers and words. Tensors are copied now. Gradients have no ``strides`` to be
        held to.
        """
        for path, leaf in leaves(value):
            if not isinstance(leaf, Tensor) or not strides:
                leaf = snapshot(leaf) if isinstance(leaf, Tensor) else leaf
                self.facts.append((f"{name}{path}", clause or self.clause, leaf))
            else:
                self._tensor(f"{name}{path}", leaf, clause or self.clause)

    def check(self, name: str, holds: bool | Tensor, clause: str = "") -> None:
        """Tells a fact that is true in every right run, whatever the numbers."""
        self.facts.append((f"must: {name}", clause or self.clause, bool(holds)))

    def run(self, program: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls the program and tells all there is to tell: results, what they share memory with, arguments afterwards,
        whether random numbers were drawn. Results are looked at again at the end.
        """
        name, self.runs = f"call{self.runs}", self.runs + 1
        random.random()  # a state that no earlier call has set
        state, python_state = self.random_state(), random.getstate()
        with_grad = torch.is_grad_enabled()
        arguments = leaves([args, kwargs], ".argument")
        before = [snapshot(x) if isinstance(x, Tensor) else x for _, x in arguments]
        result = program(*args, **kwargs)
        self._results(name, leaves(result, ".result"), arguments, before)
        if not torch.equal(state, self.random_state()):
            self.facts.append((f"{name} drew random numbers", "contract.random.C8", True))
        if python_state != random.getstate():
            self.facts.append((f"{name} moved Python's generator", "contract.random.C8", True))
        self.facts.append((f"{name} gradients enabled", "contract.modes.C2", torch.is_grad_enabled() == with_grad))
        return result

    def random_state(self) -> Tensor:
        """That of the generator that draws on the device."""
        return torch.get_rng_state() if self.device == HOST else torch.get_device_module(self.device).get_rng_state()

    def backward(
        self,
        results: Any,
        args: Iterable[Any],
        tangent: Callable[[Tensor], Tensor] | None = None,
        clause: str = "contract.gradients.C1",
        **how: Any,
    ) -> None:
        """Differentiates the results that require it, and tells the gradient of each argument that is a leaf."""
        outs = [x for _, x in leaves(results) if isinstance(x, Tensor) and x.requires_grad]
        tangents = [(tangent or self.tangent)(x) for x in outs]
        torch.autograd.backward(outs, tangents, **how)
        for k, x in enumerate(args):
            if isinstance(x, Tensor) and x.is_leaf and x.is_floating_point():
                self.gradient(f"call{self.runs - 1}.gradient[{k}]", x, clause)

    def gradient(self, name: str, x: Tensor, clause: str = "contract.gradients.C1") -> None:
        if x.grad is None:
            self.facts.append((name, "contract.gradients.C2", None))
        else:
            self.facts.append((name, clause, snapshot(x.grad)))

    def tangent(self, x: Tensor) -> Tensor:
        """Small integers, of ``x``'s own layout."""
        return torch.empty_like(x, requires_grad=False).copy_(self.ints(*x.shape, low=-2, high=3))

    def state(self, name: str, module: nn.Module, clause: str = "") -> None:
        """Tells the parameters and buffers of a module."""
        for key, x in module.state_dict().items():
            self.facts.append((f"{name}.{key}", clause or self.clause, snapshot(x)))

    def finish(self) -> tuple[Fact, ...]:
        """All facts, earlier results looked at once more; names told several times are numbered."""
        for name, x in self.results:
            self.facts.append((f"{name} at the end", "contract.calls.C2", snapshot(x)))
        times: Counter[str] = Counter()
        results = []
        for name, clause, value in self.facts:
            times[name] += 1
            value = value.cpu() if isinstance(value, Tensor) else value
            results.append((name if times[name] == 1 else f"{name} ({times[name]})", clause, value))
        return tuple(results)

    # -- telling -----------------------------------------------------------------------------------------------------

    def _layout(self, x: Tensor) -> dict[str, Any]:
        """Leaves out the name of the device under test, so that runs on different devices can be compared."""
        return layout(x) | {"device": "its own" if x.device.type == self.device else x.device.type}

    def _tensor(self, name: str, x: Tensor, clause: str) -> None:
        facts = self._layout(x)
        strides = facts.pop("strides")
        self.facts += [
            (f"{name} type", "contract.layouts.C4", facts),
            (f"{name} values", clause, snapshot(x)),
            (f"{name} strides", "contract.layouts.C1", strides),
        ]

    def _results(
        self, name: str, results: Sequence[tuple[str, Any]], args: Sequence[tuple[str, Any]], before: Sequence[Any]
    ) -> None:
        tensors = [(path, x) for path, x in args if isinstance(x, Tensor)]
        inputs, earlier = Memories(tensors), Memories([])
        for path, x in results:
            if not isinstance(x, Tensor):
                self.facts.append(
                    (f"{name}{path}", "contract.scalars.C3", x if isinstance(x, str) else [type(x).__name__, x])
                )
                continue
            self._tensor(f"{name}{path}", x, self.clause)
            self.facts += [
                (f"{name}{path} requires a gradient", "contract.gradients.C5", x.requires_grad),
                (f"{name}{path} is the argument", "contract.aliases.C2", [p for p, a in tensors if a is x]),
                (f"{name}{path} shares memory with", "contract.aliases.C4", inputs.shared(x)),
                (f"{name}{path} shares memory with results", "contract.aliases.C1", earlier.shared(x)),
            ]
            earlier.add(path, x)
            self.results.append((f"{name}{path}", x))
        for (path, x), was in zip(args, before, strict=True):
            if not isinstance(x, Tensor):
                continue
            written = was.shape != x.shape or not same(was, x)
            self.facts.append(
                (f"{name}{path} afterwards", f"contract.mutation.{'C2' if written else 'C1'}", snapshot(x))
            )
            self.facts.append(
                (
                    f"{name}{path} layout afterwards",
                    "contract.mutation.C7",
                    {k: v for k, v in self._layout(x).items() if k != "dtype"},
                )
            )
            self.facts.append((f"{name}{path} memory around it", "contract.mutation.C5", around(x)))


class Memories:
    """Tensors by the memory that they lie in."""

    def __init__(self, tensors: Iterable[tuple[str, Tensor]]):
        self.begins: dict[int, list[tuple[str, int]]] = {}
        for path, x in tensors:
            self.add(path, x)

    def add(self, path: str, x: Tensor) -> None:
        if x.numel():
            self.begins.setdefault(x.untyped_storage().data_ptr(), []).append((path, int(x.storage_offset())))

    def shared(self, x: Tensor) -> list[str]:
        """Which of them lie in the memory of ``x``, each with how far apart they begin, in elements."""
        if not x.numel():
            return []
        return [
            f"{path} {x.storage_offset() - begin:+d}"
            for path, begin in self.begins.get(x.untyped_storage().data_ptr(), ())
        ]


def around(x: Tensor) -> Tensor:
    """All of the memory that ``x`` lies in: its own elements, and those between, before and after them."""
    x = x.detach()
    count = x.untyped_storage().nbytes() // x.itemsize
    return x.as_strided((count,), (1,), 0).clone() if x.numel() else x.clone()
