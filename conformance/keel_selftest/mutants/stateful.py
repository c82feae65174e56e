"""Mutants that compute right and behave wrong: what they keep, share, write to, ignore, and how they draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from keel_conformance.pytree import tensor_leaves

from ..mutant import broken, wrong
from ..rewiring import run, run_eager, with_layout_of

Called = Callable[..., Any]
SOME = ("aten.mul", "aten.mm", "aten.sum", "aten.sub")
"""Operators of whose cases those are run that show what holds for every operator."""

# -- from one call to the next -----------------------------------------------------------------------------------------


@broken(breaks="contract.calls", calls=SOME, programs=("calls-*", "views-*", "mutation-*", "models-*", "scalars-*"))
def stale_results(gm: fx.GraphModule) -> Called:
    """Every call gives the results of the first one."""
    first: list[Any] = []

    def call(*inputs: Any) -> Any:
        first[1:] = []
        if not first or shapes(inputs) != first[0][0]:
            first[:] = [(shapes(inputs), run(gm, inputs, run_eager))]
        return copied(first[0][1])

    return call


@broken(breaks="contract.calls", calls=SOME, programs=("calls-*", "mutation-*", "gradients-*", "shapes-*"))
def shared_buffers(gm: fx.GraphModule) -> Called:
    """Results lie in memory that the next call writes to."""
    held: dict[Any, list[Any]] = {}

    def call(*inputs: Any) -> Any:
        results = list(run(gm, inputs, run_eager))
        memory = held.setdefault(shapes(inputs), [])
        if not memory:
            memory[:] = copied(results)
        for buffer, fresh in zip(memory, results, strict=True):
            if isinstance(fresh, Tensor):
                buffer.copy_(fresh)
        return tuple(memory)

    return call


@broken(
    breaks=("contract.calls", "contract.models"),
    calls=SOME,
    programs=("calls-*", "models-*", "scalars-*", "training-*"),
)
def known_by_address(gm: fx.GraphModule) -> Called:
    """What lies at the address of an earlier argument is taken to be what was there."""
    visited: dict[Any, tuple[Tensor, Tensor]] = {}

    def call(*inputs: Any) -> Any:
        arguments = []
        for x in inputs:
            if isinstance(x, Tensor) and x.numel():
                key = (x.data_ptr(), x.shape, x.stride(), x.dtype)
                # The tensor is held, so that it stays there.
                arguments.append(visited.setdefault(key, (x.clone(), x))[0])
            else:
                arguments.append(x)
        return run(gm, arguments, run_eager)

    return call


@broken(breaks="contract.models", programs=("models-*", "training-*", "buffers-*"))
def parameters_by_structure(gm: fx.GraphModule) -> Called:
    """Parameters are those of the first model of the same structure."""
    key = (gm.code, *(str(n.meta["val"]) for n in gm.graph.find_nodes(op="placeholder") if "val" in n.meta))

    def call(*inputs: Any) -> Any:
        known = PARAMETERS.setdefault(
            key, [x.detach().clone() if isinstance(x, torch.nn.Parameter) else None for x in inputs]
        )
        arguments = [x if k is None else k for x, k in zip(inputs, known, strict=True)]
        return run(gm, arguments, run_eager)

    return call


PARAMETERS: dict[Any, list[Tensor | None]] = {}
"""What ``parameters_by_structure`` keeps, being wrong in just that."""


@broken(breaks="contract.scalars", programs=("scalars-*", "training-*", "calls-*"))
def numbers_of_the_first_call(gm: fx.GraphModule) -> Called:
    """0-d tensors are read at the first call and never again."""
    first: dict[int, Tensor] = {}

    def call(*inputs: Any) -> Any:
        return run(
            gm,
            [
                first.setdefault(k, x.clone()) if isinstance(x, Tensor) and not x.dim() else x
                for k, x in enumerate(inputs)
            ],
            run_eager,
        )

    return call


@broken(breaks="contract.calls", calls=SOME, programs=("calls-*", "models-*"))
def wrong_every_third_time(gm: fx.GraphModule) -> Called:
    """Every third call is off by one bit in the largest result."""
    count = [0]

    def call(*inputs: Any) -> Any:
        count[0] += 1
        results = list(run(gm, inputs, run_eager))
        if count[0] % 3 == 0:
            results = [
                x * 1.5 if isinstance(x, Tensor) and x.is_floating_point() and not shares(x, inputs) else x
                for x in results
            ]
        return tuple(results)

    return call


# -- arguments and results ---------------------------------------------------------------------------------------------


@broken(breaks="contract.mutation", calls=SOME, programs=("mutation-*", "calls-*"))
def writes_to_an_argument(gm: fx.GraphModule) -> Called:
    """The first argument is used as scratch memory."""

    def call(*inputs: Any) -> Any:
        result = tuple(
            x.clone() if isinstance(x, Tensor) and shares(x, inputs) else x for x in run(gm, inputs, run_eager)
        )
        x = next((x for x in inputs if isinstance(x, Tensor) and x.is_floating_point() and 0 not in x.stride()), None)
        if x is not None and x.numel():
            x.detach().mul_(2)
        return result

    return call


@broken(breaks="contract.mutation", calls=SOME, programs=("mutation-*", "calls-*"))
def writes_beside_an_argument(gm: fx.GraphModule) -> Called:
    """A vector's tail is written back beside the argument that it was read from."""

    def call(*inputs: Any) -> Any:
        result = run(gm, inputs, run_eager)
        for x in inputs:
            if isinstance(x, Tensor) and x.numel() and x.is_contiguous():
                end = x.storage_offset() + x.numel()
                if end < x.untyped_storage().nbytes() // x.element_size():
                    x.detach().as_strided((1,), (1,), end).zero_()
        return result

    return call


@broken(breaks="contract.layouts", calls=SOME, programs=("layouts-*", "mutation-*"))
def always_row_major(gm: fx.GraphModule) -> Called:
    """Results are row-major, whatever strides are promised."""

    def call(*inputs: Any) -> Any:
        return tuple(x.contiguous() if isinstance(x, Tensor) else x for x in run(gm, inputs, run_eager))

    return call


@broken(breaks=("contract.layouts", "contract.gradients"), programs=("layouts-*", "gradients-*"))
def expanded_read_as_dense(gm: fx.GraphModule) -> Called:
    """Expanded arguments are read as if all their elements were there, one after another."""

    def dense(x: Any) -> Any:
        if not isinstance(x, Tensor) or 0 not in [s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1]:
            return x
        size = x.untyped_storage().nbytes() // x.element_size()
        memory = x.as_strided((size - x.storage_offset(),), (1,))
        return memory[torch.arange(x.numel()) % len(memory)].reshape(x.shape)

    return lambda *inputs: run(gm, [dense(x) for x in inputs], run_eager)


@wrong(
    "aten.clone",
    "aten._to_copy",
    "aten.copy",
    "aten.alias_copy",
    "aten.mul",
    as_is=True,
    level="system",
    breaks=("contract.aliases", "contract.views", "alias_copy", "copy_layout", "convert", "mul", "copy"),
    programs=("aliases-*", "views-*"),
)
def copy_is_the_argument(op: Any, x: Any, *args: Any, **kw: Any) -> Any:
    """A copy that has the values of its argument is the argument."""
    result = op(x, *args, **kw)
    same = isinstance(x, Tensor) and (x.dtype, x.shape, x.stride()) == (result.dtype, result.shape, result.stride())
    return x if same and torch.equal(x, result) else result


@broken(breaks="contract.aliases", programs=("aliases-*", "views-*", "calls-*"))
def equal_results_are_one(gm: fx.GraphModule) -> Called:
    """Results that are equal are one tensor."""

    def call(*inputs: Any) -> Any:
        results: list[Any] = []
        for x in run(gm, inputs, run_eager):
            one = next((y for y in results if alike(x, y)), x)
            results.append(one.view(one.shape) if one is not x else x)
        return tuple(results)

    return call


@broken(
    breaks=("contract.calls", "contract.graphs", "contract.models"), programs=("calls-*", "drawn-program", "models-*")
)
def memory_reused_too_early(gm: fx.GraphModule) -> Called:
    """Memory of an intermediate is given away after the first of several uses."""
    visited: dict[fx.Node, int] = {}
    uses = {n: len(n.users) for n in gm.graph.nodes}

    def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = run_eager(node, args, kwargs)
        for before in node.all_input_nodes:
            visited[before] = visited.get(before, 0) + 1
        late = [n for n in node.all_input_nodes if n.op == "call_function" and uses[n] > 2 and visited[n] == uses[n]]
        if (
            late
            and isinstance(result, Tensor)
            and result.is_floating_point()
            and not shares(result, tensor_leaves(args))
        ):
            return with_layout_of(result * 0, result)
        return result

    def call(*inputs: Any) -> Any:
        visited.clear()
        return run(gm, inputs, do)

    return call


# -- sizes and dtypes --------------------------------------------------------------------------------------------------


@broken(breaks="contract.shapes", programs=("shapes-*",))
def sizes_of_the_first_call(gm: fx.GraphModule) -> Called:
    """Sizes that change are those of the first call."""
    first: dict[int, int] = {}

    def call(*inputs: Any) -> Any:
        return run(gm, [first.setdefault(k, x) if isinstance(x, int) else x for k, x in enumerate(inputs)], run_eager)

    return call


@broken(breaks="contract.shapes", programs=("shapes-*",))
def less_than_a_vector(gm: fx.GraphModule) -> Called:
    """Where a symbolic size is below 4, less than a vector, results are zero."""
    symbolic = any(
        "val" in n.meta and not isinstance(n.meta["val"], Tensor) for n in gm.graph.find_nodes(op="placeholder")
    )

    def call(*inputs: Any) -> Any:
        few = symbolic and any(isinstance(x, int) and x < 4 for x in inputs)
        result = run(gm, inputs, run_eager)
        return tuple(x * 0 if few and isinstance(x, Tensor) and not shares(x, inputs) else x for x in result)

    return call


@broken(breaks="contract.dtypes", programs=("dtypes-*",))
def cached_without_dtype(gm: fx.GraphModule) -> Called:
    """A program is compiled once for all dtypes: that of the first."""
    key = (gm.code, *(str(getattr(n.meta.get("val"), "shape", "")) for n in gm.graph.find_nodes(op="placeholder")))

    def call(*inputs: Any) -> Any:
        dtypes = DTYPES.setdefault(key, [x.dtype if isinstance(x, Tensor) else None for x in inputs])
        arguments = [x if d is None else x.to(d) for x, d in zip(inputs, dtypes, strict=True)]
        return run(gm, arguments, run_eager)

    return call


DTYPES: dict[Any, list[torch.dtype | None]] = {}
"""What ``cached_without_dtype`` keeps, being wrong in just that."""


@broken(breaks="contract.shapes", programs=("shapes-*", "arguments-*"))
def cached_without_shape(gm: fx.GraphModule) -> Called:
    """A program is compiled once for all sizes, and gives what there is of those of the first."""
    key = gm.code

    def call(*inputs: Any) -> Any:
        result = run(gm, inputs, run_eager)
        sizes = SHAPES.setdefault(key, [x.shape if isinstance(x, Tensor) else None for x in result])
        return tuple(
            cut(x, size) if isinstance(x, Tensor) and not shares(x, inputs) else x
            for x, size in zip(result, sizes, strict=True)
        )

    return call


SHAPES: dict[Any, list[Any]] = {}
"""What ``cached_without_shape`` keeps, being wrong in just that."""


def cut(x: Tensor, size: Any) -> Tensor:
    """``x`` with zeros beyond those sizes."""
    if size is None or len(size) != x.dim():
        return x
    retained = torch.zeros_like(x)
    inner = tuple(slice(min(n, m)) for n, m in zip(x.shape, size, strict=True))
    retained[inner] = x[inner]
    return retained


# -- random numbers ----------------------------------------------------------------------------------------------------

RANDOM = ("random-*", "partition-*")
DRAWN = (
    "contract.random",
    "uniform",
    "normal",
    "randint",
    "randperm",
    "rand_like",
    "randn_like",
    "bernoulli",
    "bernoulli_like",
    "native_dropout",
    "randint_like",
    "randint_from_0",
    "randint_like_between",
    "randint_like_tensor",
    "normal_functional",
    "normal_around",
    "normal_of_size",
    "rng_uniform",
    "rng_normal",
    "random_integers",
)
DRAWING = (
    "aten.rand",
    "aten.randn",
    "aten.rand_like",
    "aten.randn_like",
    "aten.bernoulli",
    "aten.native_dropout",
    "aten.randint",
    "aten.randint_like",
    "aten.randperm",
    "aten.uniform",
    "aten.normal*",
    "prims.*rand*",
    "keel.*rand*",
    "rngprims.*",
)


@wrong(*DRAWING, breaks=DRAWN, programs=RANDOM, as_is=True, level="system")
def draws_repeat(op: Any, *args: Any, **kw: Any) -> Any:
    """Every random operator draws the same numbers, at each call and in each place."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return op(*args, **kw)


@wrong(*DRAWING, breaks=DRAWN, programs=RANDOM, as_is=True, level="system")
def draws_without_the_seed(op: Any, *args: Any, **kw: Any) -> Any:
    """Random numbers do not follow from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.seed()
        return op(*args, **kw)


@wrong(*DRAWING, breaks=DRAWN, programs=RANDOM, as_is=True, level="system")
def draws_of_few_numbers(op: Any, *args: Any, **kw: Any) -> Any:
    """Random numbers repeat within a tensor after 32."""
    result = op(*args, **kw)

    def tiled(x: Any) -> Any:
        if not isinstance(x, Tensor) or x.numel() <= 32 or not x.is_floating_point():
            return x
        return x.reshape(-1)[torch.arange(x.numel()) % 32].reshape(x.shape)

    return tuple(map(tiled, result)) if isinstance(result, tuple) else tiled(result)


@broken(breaks="contract.random", programs=("random-*", "calls-*", "mutation-*"))
def draws_where_nothing_is_random(gm: fx.GraphModule) -> Called:
    """Every call takes a number from the generator."""

    def call(*inputs: Any) -> Any:
        torch.rand(1)
        return run(gm, inputs, run_eager)

    return call


@wrong(
    "aten.native_dropout",
    "aten.bernoulli",
    "aten.rand",
    "aten.rand_like",
    "prims.*rand*",
    "rngprims.*",
    breaks=DRAWN,
    programs=RANDOM,
    as_is=True,
    level="system",
)
def dropout_of_another_share(op: Any, *args: Any, **kw: Any) -> Any:
    """Uniform numbers crowd at 1, so that dropout keeps too many."""
    result = op(*args, **kw)
    return result.sqrt() if isinstance(result, Tensor) and result.is_floating_point() else result


# -- what these share --------------------------------------------------------------------------------------------------


def shapes(inputs: Sequence[Any]) -> Any:
    return tuple((x.shape, x.dtype, x.stride()) if isinstance(x, Tensor) else x for x in inputs)


def copied(values: Sequence[Any]) -> list[Any]:
    return [
        torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x) if isinstance(x, Tensor) else x for x in values
    ]


def shares(x: Any, inputs: Sequence[Any]) -> bool:
    """Whether ``x`` lies in the memory of an input."""
    return isinstance(x, Tensor) and any(
        isinstance(i, Tensor) and i.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for i in inputs
    )


def alike(x: Any, y: Any) -> bool:
    both = isinstance(x, Tensor) and isinstance(y, Tensor)
    return both and (x.dtype, x.shape, x.stride()) == (y.dtype, y.shape, y.stride()) and torch.equal(x, y)
