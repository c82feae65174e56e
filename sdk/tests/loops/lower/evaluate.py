"""Definitions run by plain vectorized torch: axes are ``arange`` tensors, a fold is a torch reduction over its axes.

Small enough to be believed; what rules are compared with eager by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor

from keel.loops.builder import CheckedIndex, LoopDefinition, Read, Step, Update
from keel.loops.index import Axis, Div, Index, Loaded, Mod, loaded_of
from keel.loops.ir import Apply, Const, Position, Reduce, Scan
from keel.loops.symbolic_sizes import evaluate as size_of


def _fmod(x: Tensor, y: Tensor) -> Tensor:
    """Torch's own is NaN where x / y is large."""
    if not x.is_floating_point():
        return torch.fmod(x, y)
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.asarray(np.fmod(x.numpy(), y.numpy())))


def _mod(x: Tensor, y: Tensor) -> Tensor:
    if not x.is_floating_point():
        return torch.remainder(x, y)
    rest = _fmod(x, y)
    return torch.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


APPLY = {
    "where": torch.where,
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfinv": torch.erfinv,
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
    "sigmoid": torch.sigmoid,
    "reciprocal": torch.reciprocal,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floordiv": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "truncdiv": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "mod": _mod,
    "fmod": _fmod,
    "pow": torch.pow,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "nextafter": torch.nextafter,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "fma": lambda x, y, z: (x.double() * y.double() + z.double()).to(x.dtype),
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
}


def evaluate(
    definition: LoopDefinition, tensors: Sequence[Tensor], symbols: Mapping[str, int] | None = None
) -> list[Tensor]:
    """The results of ``definition`` on ``tensors``, its symbols bound; the result of a scatter is the written copy."""
    return _Run(definition, tensors, symbols or {}).results()


class _Run:
    """Every value has the rank of axes and folded axes together, 1 along those it does not depend on."""

    def __init__(self, definition: LoopDefinition, tensors: Sequence[Tensor], symbols: Mapping[str, int]):
        self.definition, self.tensors, self.symbols = definition, tensors, symbols
        self.space = (*definition.axes, *definition.folded)
        self.sizes = [size_of(a.size, symbols) for a in self.space]
        self.values: dict[int, Tensor] = {}
        self.visible = 0  # after a fold, what was computed inside it is gone

    def results(self) -> list[Tensor]:
        for step in self.definition.steps:
            assert min(used_by(step), default=self.visible) >= self.visible, f"{step} uses a value of before the fold"
            match step:
                case Const():
                    self.values[step.result] = torch.tensor(step.value, dtype=step.dtype)
                case Position():
                    self.values[step.result] = self.at(step.index)
                case Read():
                    self.values[step.result] = self.read(step)
                case CheckedIndex():
                    self.values[step.result] = self.place(step)
                case Apply():
                    self.values[step.result] = self.apply(step)
                case Reduce():
                    self.fold(step)
                case Scan():
                    self.scan(step)
        assert min(self.definition.outputs, default=self.visible) >= self.visible, "a result of before the fold"
        if self.definition.update is not None:
            return [self.scatter(self.definition.update)]
        rank, shape = len(self.definition.axes), self.sizes[: len(self.definition.axes)]
        return [
            self.values[n].expand(*shape, *[1] * len(self.definition.folded)).reshape(shape)
            if self.definition.folded
            else self.values[n].expand(self.sizes[:rank])
            for n in self.definition.outputs
        ]

    def at(self, index: Index) -> Tensor:
        total = torch.tensor(size_of(index.const, self.symbols))
        for atom, c in index.terms:
            total = total + self.atom(atom) * size_of(c, self.symbols)
        return total

    def atom(self, atom: Axis | Loaded | Div | Mod) -> Tensor:
        match atom:
            case Axis():
                n = self.space.index(atom)
                return torch.arange(self.sizes[n]).reshape([-1 if i == n else 1 for i in range(len(self.space))])
            case Loaded():
                return self.values[atom.value]
            case Div():
                return self.at(atom.of) // size_of(atom.by, self.symbols)
            case Mod():
                return self.at(atom.of) % size_of(atom.by, self.symbols)

    def place(self, step: CheckedIndex) -> Tensor:
        value, bound = self.values[step.value], size_of(step.bound, self.symbols)
        value = torch.where(value < 0, value + bound, value) if step.wrap else value
        inside = (value >= 0) & (value < bound)
        asked = torch.tensor(True) if step.mask is None else self.values[step.mask]
        assert (inside | ~asked).all() or not bound, f"{step} has no place"
        return torch.where(inside, value, 0)

    def read(self, step: Read) -> Tensor:
        source = self.tensors[step.operand]
        if step.mask is None:
            indices = [self.at(i) for i in step.at]
            everywhere = all(i.numel() for i in indices)
            assert not everywhere or all(int(i.min()) >= 0 for i in indices), f"{step} reads before the start"
            return source[tuple(indices)]
        mask = self.values[step.mask]
        if not source.numel():
            shape = torch.broadcast_shapes(mask.shape, *(self.at(i).shape for i in step.at))
            assert not mask.expand(shape).any(), f"{step} reads an empty tensor"
            return torch.zeros(shape, dtype=source.dtype)
        indices = [torch.where(mask, self.at(i), 0) for i in step.at]
        assert all(not i.numel() or int(i.min()) >= 0 for i in indices), f"{step} reads before the start"
        return torch.where(mask, source[tuple(indices)], torch.zeros((), dtype=source.dtype))

    def apply(self, step: Apply) -> Tensor:
        args = [self.values[n] for n in step.args]
        if step.op == "cast":
            return args[0].to(step.dtype)
        if step.op == "bitcast":
            return args[0].contiguous().view(step.dtype)
        out = APPLY[step.op](*args)
        assert out.dtype == step.dtype, f"{step} gives {out.dtype}"
        return out

    def fold(self, step: Reduce) -> None:
        kept, folded = len(self.definition.axes), len(self.definition.folded)
        count = prod(self.sizes[kept:])
        args = [self.values[n].expand(self.sizes).reshape(*self.sizes[:kept], count) for n in step.args]
        for n, value in zip(step.results, folds(step.monoid, args), strict=True):
            self.values[n] = value.reshape(*self.sizes[:kept], *[1] * folded)
        self.visible = self.visible or step.results[0]

    def scan(self, step: Scan) -> None:
        along = self.space.index(self.definition.scanned)
        value = self.values[step.args[0]].expand(self.sizes)
        running = {"sum": torch.cumsum, "prod": torch.cumprod}[step.monoid](value, along, dtype=value.dtype)
        self.values[step.results[0]] = running

    def scatter(self, update: Update) -> Tensor:
        out = self.tensors[self.definition.base].clone()
        mask = torch.tensor(True) if update.mask is None else self.values[update.mask]
        mask = mask.expand(self.sizes)
        where = tuple(self.at(i).expand(self.sizes)[mask] for i in update.at)
        value = self.values[update.value].expand(self.sizes)[mask]
        if not out.ndim:
            where, out, flat = (torch.zeros(value.shape, dtype=torch.int64),), out.reshape(1), True
        else:
            flat = False
        if update.mode in ("write", "add"):
            out = out.index_put(where, value, accumulate=update.mode == "add")
        else:
            linear = torch.zeros_like(value, dtype=torch.int64)
            for i, n in zip(where, out.shape, strict=True):
                linear = linear * n + i
            mode = {"min": "amin", "max": "amax", "mul": "prod"}[update.mode]
            out = out.reshape(-1).scatter_reduce(0, linear, value, mode).reshape(out.shape)
        return out.reshape(()) if flat else out


def used_by(step: Step) -> set[int]:
    """The numbers of the values that a step uses."""
    match step:
        case Position():
            return loaded_of(step.index)
        case Read():
            return {n for i in step.at for n in loaded_of(i)} | ({step.mask} if step.mask is not None else set())
        case CheckedIndex():
            return {step.value} | ({step.mask} if step.mask is not None else set())
        case Apply() | Reduce() | Scan():
            return set(step.args)
    return set()


def folds(monoid: str, args: list[Tensor]) -> list[Tensor]:
    """The components of a monoid's fold over the last dimension."""
    x = args[0]
    match monoid:
        case "sum":
            return [x.sum(-1, dtype=x.dtype)]
        case "prod":
            return [x.prod(-1, dtype=x.dtype)]
        case "max":
            return [x.amax(-1)]
        case "min":
            return [x.amin(-1)]
        case "any":
            return [x.any(-1)]
        case "all":
            return [x.all(-1)]
        case "argmax" | "argmin":
            best = (x.amax if monoid == "argmax" else x.amin)(-1, keepdim=True)
            hit = (x == best) | (torch.isnan(x) if x.is_floating_point() else False)
            where = torch.where(hit, args[1], torch.iinfo(torch.int64).max).amin(-1, keepdim=True)
            return [best[..., 0], where[..., 0]]
    raise AssertionError(f"no fold with {monoid}")
