"""Collectives: what the processes of a group do together. Each is an effect, in the order of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import ALL
from keel.spec.op import Budget, Family, Requires, Sample
from keel.spec.rules import DENSE, Args, Out, ShapeRule, like, preserved, shape_of, sizes
from keel.spec.samples import drawn
from keel.types import TensorType, Type, as_dim

family = Family("collectives", profile="collectives")

ops = torch.ops._c10d_functional
Tensor = torch.Tensor
_TAGS = frozenset({"collective", "effect"})
_ORDERED = (
    "All processes of the group make the same collectives on it in the same order; none is left out because "
    "its result is not used, merged with an equal one, or exchanged with another in order."
)
_AWAITED = "The result holds values only once wait_tensor was called on it; until then it is neither read nor freed."
_INPUT_UNCHANGED = "The input is not changed, and may be written to only once the result was waited for."
_REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
_REDUCES = Requires(
    "reduction-known",
    f"The reduction is one of {', '.join(_REDUCTIONS)}.",
    lambda args: args["reduce_op"].lower() in _REDUCTIONS,
)
_ROUNDS = (
    "A sum is rounded in an order that is the same on all processes: they get the same bits, but other numbers "
    "of processes or other topologies may get others."
)
_GROUP = "world"


def _declare(
    name: str,
    doc: str,
    *clauses: Clause | str,
    out: Any,
    samples: Callable[[torch.dtype], Iterator[Sample]],
    requires: Sequence[Requires] = (),
    overloads: Sequence[str] = (),
    waits: bool = True,
    budget: Budget | None = None,
) -> None:
    all_clauses = (*clauses, *((_AWAITED, _INPUT_UNCHANGED) if waits else ()), _ORDERED)
    family.primitive(
        name,
        f"_c10d_functional::{name}",
        *overloads,
        doc=doc,
        clauses=all_clauses,
        out=out,
        dtypes=ALL,
        requires=tuple(requires),
        samples=samples,
        tags=_TAGS,
        budget={d: budget or Budget(ulps=0) for d in ALL},
    )


def _each(*more: Any, scalars: bool = True) -> Callable[[torch.dtype], Iterator[Sample]]:
    """Tensors of several sizes and layouts, each with the other arguments."""

    def samples(dtype: torch.dtype) -> Iterator[Sample]:
        for shape in (*(((),) if scalars else ()), (8,), (4, 3), (4, 0, 2)):
            yield Sample((drawn(dtype, *shape), *more))
        yield Sample((drawn(dtype, 6, 4).t(), *more))
        yield Sample((drawn(dtype, 4, 6)[:, ::2], *more))

    return samples


def _scaled(name: str, factor: Callable[[Any, Any], Any], text: str) -> ShapeRule:
    def of(args: Args) -> tuple[Any, ...]:
        first, *rest = args[name].shape or (1,)
        return (as_dim(factor(first, args["group_size"])), *rest)

    return ShapeRule(f"shape({name}), the first size {text} group_size", of)


_declare(
    "all_reduce",
    "The reduction of the inputs of all processes, given to all.",
    "Element i is the reduction of the elements i of all inputs; avg is the sum divided by the number of processes.",
    _ROUNDS,
    out=(Out(like("input"), shape_of("input"), DENSE),),
    requires=(_REDUCES,),
    samples=_each("sum", _GROUP),
    budget=Budget(times=2.0),
)
_declare(
    "all_gather_into_tensor",
    "The inputs of all processes one after the other, given to all.",
    Clause("Process r's input is block r along the first dimension; a scalar counts as one element.", About.SCALAR),
    "All inputs have the same sizes and dtype.",
    out=(Out(like("input"), _scaled("input", lambda n, k: n * k, "times"), DENSE),),
    samples=_each(4, _GROUP),
    overloads=("_c10d_functional_autograd::all_gather_into_tensor",),
)
_declare(
    "reduce_scatter_tensor",
    "The reduction of the inputs of all processes, a block of it given to each.",
    "Process r gets block r along the first dimension of what all_reduce would give.",
    _ROUNDS,
    out=(Out(like("input"), _scaled("input", lambda n, k: n // k, "over"), DENSE),),
    requires=(
        _REDUCES,
        Requires(
            "divisible",
            "The first size is a multiple of group_size.",
            lambda args: (
                bool(args["input"].rank)
                and (not isinstance(args["input"].shape[0], int) or args["input"].shape[0] % args["group_size"] == 0)
            ),
        ),
    ),
    samples=_each("sum", 4, _GROUP, scalars=False),
    overloads=("_c10d_functional_autograd::reduce_scatter_tensor",),
    budget=Budget(times=2.0),
)


def _exchanged(args: Args) -> tuple[Any, ...]:
    return (sum(sizes(args["output_split_sizes"])), *args["input"].shape[1:])


def _splits(dtype: torch.dtype) -> Iterator[Sample]:
    for shape, into, of in (((8,), [3, 1], [4, 4]), ((4, 3), [0, 2], [4, 0]), ((4, 0, 2), [2, 2], [2, 2])):
        yield Sample((drawn(dtype, *shape), into, of, _GROUP))


def _adds_up(args: Args) -> bool:
    total, have = sum(sizes(args["input_split_sizes"])), args["input"].shape[0]
    return not (isinstance(total, int) and isinstance(have, int)) or total == have


_declare(
    "all_to_all_single",
    "Each process sends a block of its input to each, and gets one from each.",
    "Block s along the first dimension of the input, of input_split_sizes[s], goes to process s; the block from "
    "process r is block r of the result, of output_split_sizes[r].",
    "What r sends to s has the size that s expects from r.",
    out=(Out(like("input"), ShapeRule("[sum(output_split_sizes), *shape(input)[1:]]", _exchanged), DENSE),),
    requires=(Requires("blocks-add-up", "The input's blocks add up to its first size.", _adds_up),),
    samples=_splits,
    overloads=("_c10d_functional_autograd::all_to_all_single",),
)
_declare(
    "broadcast",
    "The input of process src, given to all.",
    "All inputs have the same sizes and dtype.",
    out=(Out(like("input"), shape_of("input"), preserved("input")),),
    samples=_each(0, _GROUP),
)
_declare(
    "wait_tensor",
    "A collective's result, once it holds values.",
    "A tensor that is not the result of a collective is returned as it is.",
    "The result may share the argument's memory: do not read the argument after waiting.",
    out=(Out(like("tensor"), shape_of("tensor"), preserved("tensor")),),
    samples=_each(),
    waits=False,
)
_declare(
    "isend",
    "Sends a tensor to process dst.",
    "The receiver calls irecv for it, with the same tag, sizes and dtype.",
    "The result is an empty tensor of shape [0] to wait for.",
    out=(Out(like("tensor"), ShapeRule("[0]", lambda args: (0,)), DENSE),),
    samples=_each(1, 0, _GROUP),
)
_declare(
    "irecv",
    "The tensor that process src sends.",
    "The argument gives sizes, strides and dtype, and may be the memory that it is received into.",
    "From one sender, and with one tag, what is sent first is received first.",
    out=(Out(like("tensor"), shape_of("tensor"), preserved("tensor")),),
    samples=_each(1, 0, _GROUP),
)


def _received(args: Args) -> tuple[Type | None, ...]:
    """What is received has the type of its tensor, what is sent no elements."""
    return tuple(
        t if op == "irecv" else TensorType.dense(t.dtype, (0,), t.device)
        for op, t in zip(args["op_list"], args["tensors"], strict=True)
    )


def _pairs(dtype: torch.dtype) -> Iterator[Sample]:
    x, y = drawn(dtype, 3), drawn(dtype, 4, 2).t()
    yield Sample((["isend", "irecv"], [1, 1], [0, 0], [x, y], _GROUP))


_declare(
    "batch_p2p_ops",
    "Sends and receptions that happen together.",
    "The results are those of the isend or irecv that op_list names, one per tensor.",
    "None of them waits for another of the same batch: processes may send to each other.",
    out=_received,
    samples=_pairs,
    requires=(
        Requires(
            "sends-or-receives",
            "Every entry of op_list is isend or irecv.",
            lambda args: set(args["op_list"]) <= {"isend", "irecv"},
        ),
    ),
)


# -- several at once --------------------------------------------------------------------------------------------------

_SEVERAL = "The results are those of the collective for each tensor, in order."


@family("_c10d_functional::all_reduce_coalesced", clauses=(_SEVERAL,), tags=_TAGS)
def all_reduce_coalesced(inputs: list[Tensor], reduce_op: str, group_name: Any) -> list[Tensor]:
    """Several reductions at once."""
    return [ops.all_reduce.default(x, reduce_op, group_name) for x in inputs]


@family("_c10d_functional::all_gather_into_tensor_coalesced", clauses=(_SEVERAL,), tags=_TAGS)
def all_gather_into_tensor_coalesced(inputs: list[Tensor], group_size: int, group_name: Any) -> list[Tensor]:
    """Several gatherings at once."""
    return [ops.all_gather_into_tensor.default(x, group_size, group_name) for x in inputs]


@family("_c10d_functional::reduce_scatter_tensor_coalesced", clauses=(_SEVERAL,), tags=_TAGS)
def reduce_scatter_tensor_coalesced(
    inputs: list[Tensor], reduce_op: str, group_size: int, group_name: Any
) -> list[Tensor]:
    """Several reductions at once, a block of each given to each process."""
    return [ops.reduce_scatter_tensor.default(x, reduce_op, group_size, group_name) for x in inputs]
