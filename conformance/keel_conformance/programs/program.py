"""A contract program: a function of a ``Context``, its name, and the clauses that it witnesses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, TypeVarTuple

from torch import Tensor

from .context import Context
from .contract import CLAUSES

Body = Callable[[Context], None]
Ts = TypeVarTuple("Ts")
R = TypeVar("R")


def bound(draw: Callable[[Context, *Ts], R], *values: *Ts) -> Callable[[Context], R]:
    """Returns ``draw`` with everything but its context bound: in a loop a lambda alone would see the last values."""
    return lambda ctx: draw(ctx, *values)


@dataclass(frozen=True)
class Program:
    """``exact`` says that no rounding takes place, in any order of evaluation: results are compared bit for bit.

    ``profile`` is the one that asks for it; ``smoke`` that it is one of the few that a short run takes;
    ``noise`` is how many disturbed evaluations a rounded one is judged by, ``needs`` a package that it is not run
    without. A ``hosted`` one runs on the host whatever device the backend works on.
    """

    name: str
    chapter: str
    clauses: tuple[str, ...]
    body: Body
    exact: bool = True
    profile: str = "core"
    smoke: bool = False
    noise: int = 8
    needs: str = ""
    hosted: bool = False


@dataclass(frozen=True)
class Function:
    """A function to compile, and how the arguments of a call are drawn."""

    fn: Callable[..., Any]
    arguments: Callable[[Context], Sequence[Any]]

    def draw_arguments(self, ctx: Context, call: int) -> list[Any]:
        """Fresh arguments; at the second call ones that lie in a larger memory."""
        return [placed(ctx, x, call) for x in self.arguments(ctx)]


PROFILES: Mapping[str, str] = {
    "gradients": "training",
    "buffers": "training",
    "training": "training",
    "shapes": "dynamic",
    "assertions": "dynamic",
    "collectives": "inference",
}
"""The profile that each chapter's programs belong to, of those that are of another than ``core``."""


@dataclass
class Chapter:
    """Collects the programs that one module has of a chapter of the contract: ``@chapter("C1", "C2")`` makes one of the
    function below it, and ``chapter.function`` one of a function to compile and how its arguments are drawn.
    ``functions`` are those of these that are called with nothing else to say, by the names of their programs.
    ``profile`` is that of the chapter, ``core`` if the table of ``PROFILES`` does not say another.
    """

    name: str
    profile: str = ""
    hosted: bool = False
    programs: list[Program] = field(default_factory=list)
    functions: dict[str, Function] = field(default_factory=dict)

    def __call__(self, *clauses: str, name: str = "", **more: Any) -> Callable[[Body], Body]:
        def declare(body: Body) -> Body:
            self._add(name or body.__name__.strip("_").replace("_", "-"), clauses, body, **more)
            return body

        return declare

    def function(
        self,
        name: str,
        clauses: Sequence[str],
        fn: Callable[..., Any],
        arguments: Callable[[Context], Sequence[Any]],
        *,
        gradients: bool = False,
        dynamic: bool | None = None,
        without: tuple[str, ...] = (),
        breaks: bool = False,
        **more: Any,
    ) -> None:
        """``fn`` on fresh arguments at each call. One that ``breaks`` makes several graphs: a size of it depends on
        values.
        """
        function = Function(fn, arguments)
        if dynamic is None and not (gradients or without or breaks):
            self.functions[f"{self.name}-{name}"] = function

        def body(ctx: Context) -> None:
            go = ctx.compile(fn, dynamic=dynamic, without=without)
            for call in ctx.rounds():
                args = function.draw_arguments(ctx, call)
                with_gradients = [
                    x.requires_grad_() for x in args if gradients and isinstance(x, Tensor) and x.is_floating_point()
                ]
                results = ctx.run(go, *args)
                if with_gradients:
                    ctx.backward(results, args)

        self._add(name, clauses, body, **more)

    def _add(self, name: str, clauses: Sequence[str], body: Body, **more: Any) -> None:
        cited = tuple(f"contract.{c}" if "." in c else f"contract.{self.name}.{c}" for c in clauses)
        if unknown := [c for c in cited if c not in CLAUSES]:
            raise ValueError(f"{name} cites {', '.join(unknown)}, which the contract lacks.")
        profile = self.profile or PROFILES.get(self.name, "core")
        more = {"profile": profile, "hosted": self.hosted, **more}
        self.programs.append(Program(f"{self.name}-{name}", self.name, cited, body, **more))


def placed(ctx: Context, x: Any, call: int) -> Any:
    """``x``, at the second call of three in the middle of a larger memory if it is a whole one of its own."""
    plain = isinstance(x, Tensor) and x.is_contiguous() and x.untyped_storage().nbytes() == x.numel() * x.itemsize
    return ctx.inside_larger_storage(x) if plain and call % 3 == 1 and x.dim() else x
