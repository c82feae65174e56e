"""Control flow and effects: operators that take graphs, and what keeps host effects in order.

An operator of higher order has no schema: the types of its results are those of its graphs' results, as each entry of
``doc`` says, so it has no type rule of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.op import Family, Requires, Sample
from keel.spec.rules import DENSE, Out, ShapeRule, fixed

family = Family("control flow", profile="control")

_CONTROL = frozenset({"control"})
_EFFECT = frozenset({"control", "effect"})
_PURE = "The graphs are functional: they write to none of their arguments, and their results are not views of these."
_TYPES = "All results have the types that the graphs' results have."
_INSIDE = "Effects and random draws inside happen as often, and in the order, in which the graphs run."


def _declare(name: str, doc: str, *clauses: Clause | str, tags: frozenset[str] = _CONTROL, **more: Any) -> None:
    overload = more.pop("overload", f"higher_order::{name}")
    family.primitive(name, overload, doc=doc, clauses=clauses, tags=tags, **more)


_declare(
    "cond",
    "One of two graphs, by a condition: cond(pred, true_fn, false_fn, operands).",
    Clause("pred is one bool; only the graph that it names runs.", About.BOOL),
    "Both graphs take the operands and give results of equal number, dtypes, sizes and strides; a size that differs is "
    "one known at run time only.",
    _PURE,
    _TYPES,
    _INSIDE,
)
_declare(
    "while_loop",
    "A graph again and again while a condition holds: while_loop(cond_fn, body_fn, carried, additional).",
    Clause(
        "cond_fn takes the carried values and the additional inputs and gives one bool; body_fn takes the same and "
        "gives the carried values of the next round.",
        About.BOOL,
    ),
    "The condition is asked before each round; if it does not hold at first, the results are the carried inputs.",
    "Carried values keep their dtypes, sizes and strides from round to round.",
    _PURE,
    _TYPES,
    _INSIDE,
)
_declare(
    "while_loop_stack_output",
    "while_loop with the carried values of all rounds, as its backward reads them.",
    "The results are the carried values after each round, stacked along a new first dimension, whose size is known "
    "only at run time.",
    "Otherwise it is while_loop.",
    _PURE,
    _INSIDE,
)
_declare(
    "scan",
    "A graph for each slice of sequences, in order: scan(combine_fn, init, xs, additional).",
    "combine_fn takes the carried values, one slice of each of xs along the first dimension and the additional inputs, "
    "and gives the next carried values and a slice of each result.",
    "The results are the last carried values, and the slices stacked along a new first dimension.",
    "Slices are taken from the first to the last; xs have equal first sizes, of at least 1.",
    _PURE,
    _INSIDE,
)
_declare(
    "associative_scan",
    "The running results of an associative graph: associative_scan(combine_fn, xs, additional).",
    "Element i of the results is the combination of elements 0 to i of xs along the first dimension, in this order.",
    "combine_fn is associative, and does not have to be commutative; it may be applied in any grouping, so that "
    "floats are rounded in no specified order.",
    "It has no effects, and draws no random numbers.",
    "The results have the types of xs.",
    _PURE,
)
_declare(
    "map_impl",
    "A graph for each slice of sequences, all apart: map_impl(f, xs, additional).",
    "f takes a slice of each of xs along the first dimension and the additional inputs; its results are stacked along "
    "a new first dimension.",
    "The slices may be treated in any order, and all at once; f has no effects.",
    _PURE,
)
_declare(
    "invoke_subgraph",
    "A graph that occurs several times: invoke_subgraph(graph, identifier, *operands).",
    "It means the same as the graph written out in its place.",
    "Equal identifiers name equal graphs, which need be compiled only once.",
    _PURE,
    _TYPES,
    _INSIDE,
)
_declare(
    "run_with_rng_state",
    "An operator with a random state: run_with_rng_state(state, operator, *args).",
    "The operator draws as from a generator in that state; the generator that it would have used is left as it was.",
    "The same state and arguments give the same results, on one version of one backend.",
    tags=frozenset({"control", "random"}),
)
_declare(
    "run_and_save_rng_state",
    "An operator with the random state before it: run_and_save_rng_state(operator, *args).",
    "The results are the state of the generator that the operator draws from, before it draws, then those of the "
    "operator.",
    "run_with_rng_state with that state draws the same again.",
    tags=frozenset({"control", "random"}),
)
_declare(
    "triton_kernel_wrapper_functional",
    "A Triton kernel of the user: triton_kernel_wrapper_functional(kernel_idx=..., grid=..., kwargs=...).",
    "The results are copies of the tensors that the kernel writes, with what it wrote; the arguments are not changed.",
    "Elements that the kernel does not write keep the arguments' values.",
    "The grid is that of the call; a configuration that autotuning would choose may be chosen once.",
    barred="It names a kernel by its number in one process.",
)
_declare(
    "custom_call",
    "An operator of the user that writes to arguments: auto_functionalized_v2(operator, **kwargs).",
    "The results are those of the operator, then the tensors that it writes as they are after it; the arguments are "
    "not changed.",
    "What the operator is known to write is all that it writes; its kernel is the user's, and runs as it is.",
    "It is neither left out nor merged with an equal call unless its schema says that it has no other effect.",
    overload="higher_order::auto_functionalized_v2",
    tags=_EFFECT,
)

# -- effects ----------------------------------------------------------------------------------------------------------

_TOKEN = Out(fixed(torch.float32), ShapeRule("[0]", lambda args: (0,)), DENSE)
_ORDER = (
    "What takes a token happens after what gave it; nothing with an effect happens out of the order of its "
    "tokens, and nothing is left out because its results are not used."
)


def _no_arguments(dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample(())


_declare(
    "with_effects",
    "An operator with an effect, in order: with_effects(token, operator, *args).",
    "The results are a new token, then those of the operator.",
    _ORDER,
    "A token carries no value.",
    tags=_EFFECT,
)
_declare(
    "make_token",
    "The first token of a chain of effects.",
    "A token carries no value.",
    overload="prims::_make_token",
    out=(_TOKEN,),
    samples=_no_arguments,
    dtypes=(torch.float32,),
    tags=_EFFECT,
)
_declare(
    "sink_tokens",
    "The last tokens of chains of effects.",
    "All effects of the chains have happened after it.",
    overload="prims::_sink_tokens",
    out=(),
    dtypes=(torch.float32,),
    tags=_EFFECT,
)


_declare(
    "linalg_check_errors",
    "Goes on if a factorization succeeded: _linalg_check_errors(info, api_name, is_matrix).",
    "If an element of info is not 0 it raises torch.linalg.LinAlgError, with a message that names the function, what "
    "went wrong and, for a batch, the first matrix.",
    "In that case no later effect is visible.",
    "A check is neither moved before what comes first, nor left out because it has no result.",
    profile="linalg",
    overload="_linalg_check_errors",
    out=(),
    dtypes=(torch.int32,),
    tags=frozenset({"host", "effect"}),
    requires=(Requires("info-dtype", "info is int32.", lambda args: args["info"].dtype == torch.int32),),
)
