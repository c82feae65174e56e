"""Mutants of runtimes: what is cached by too little, given away too early, or left behind by a call.

The list follows what goes wrong between a compiled graph and its caller, in backward passes, loops over symbolic sizes
and threads. It was written before any of it was tried on a program.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from ..mutant import broken
from ..rewiring import is_backward, is_tangent, packet, placeholders, run, run_eager
from .runtimes import draws
from .stateful import Called, shares


def is_symbolic(gm: fx.GraphModule) -> bool:
    """Whether an argument is a symbolic size, or has one."""
    values = [n.meta.get("val") for n in placeholders(gm)]
    sizes = [n for v in values for n in ((v,) if not isinstance(v, Tensor) else v.shape)]
    return any(isinstance(n, torch.SymInt) for n in sizes)


def same_type(x: Any, y: Any) -> bool:
    both = isinstance(x, Tensor) and isinstance(y, Tensor)
    return both and (x.dtype, x.shape, x.stride()) == (y.dtype, y.shape, y.stride())


# -- by what compiled code and plans are found -------------------------------------------------------------------------


@broken(breaks=("contract.shapes", "contract.calls"), programs=("shapes-*", "calls-*", "states-*"))
def launches_by_the_sum_of_sizes(gm: fx.GraphModule) -> Called:
    """The launch sizes of a program with symbolic sizes are cached by the sum of these sizes."""
    launches: dict[Any, list[Any]] = {}
    symbolic = is_symbolic(gm)

    def call(*inputs: Any) -> Any:
        results = run(gm, inputs, run_eager)
        total = sum(n for x in inputs if isinstance(x, Tensor) for n in x.shape)
        sizes = launches.setdefault(total, [getattr(x, "shape", ()) for x in results])
        for x, shape in zip(results, sizes, strict=True):
            if symbolic and isinstance(x, Tensor) and x.dim() and x.dim() == len(shape) and not shares(x, inputs):
                for d, n in enumerate(shape):
                    x.detach().narrow(d, min(n, x.shape[d]), max(x.shape[d] - n, 0)).zero_()
        return results

    return call


@broken(breaks=("contract.dtypes", "contract.calls", "contract.models"), programs=("dtypes-*", "graphs-*", "states-*"))
def code_by_the_width_of_dtypes(gm: fx.GraphModule) -> Called:
    """Compiled code is found by the width of dtypes, and so float16 and bfloat16 share it."""
    half = (torch.float16, torch.bfloat16)
    values = [n.meta.get("val") for n in placeholders(gm)]
    dtypes = {v.dtype for v in values if isinstance(v, Tensor)}
    key = (
        tuple(str(n.target) for n in gm.graph.nodes if n.op == "call_function"),
        tuple((tuple(v.shape), v.itemsize) if isinstance(v, Tensor) else str(v) for v in values),
    )
    if len(dtypes) != 1 or next(iter(dtypes)) not in half or is_symbolic(gm):
        return lambda *inputs: run(gm, inputs, run_eager)
    own = next(iter(dtypes))
    first = WIDTHS.setdefault(key, own)

    def call(*inputs: Any) -> Any:
        if first == own:
            return run(gm, inputs, run_eager)
        results = run(gm, [x.view(first) if isinstance(x, Tensor) else x for x in inputs], run_eager)
        return tuple(x.view(own) if isinstance(x, Tensor) and x.dtype == first else x for x in results)

    return call


WIDTHS: dict[Any, torch.dtype] = {}
"""What ``code_by_the_width_of_dtypes`` holds for the whole process."""


@broken(
    breaks=("contract.calls", "contract.models", "contract.graphs"),
    programs=("graphs-*", "models-*", "calls-*", "drawn-program"),
)
def names_cut_at_sixty_characters(gm: fx.GraphModule) -> Called:
    """Compiled code is found by a name made of its operators, which is cut at 60 characters, and by types."""
    name = "_".join(packet(n).rpartition(".")[2] for n in gm.graph.nodes if n.op == "call_function")
    (output,) = gm.graph.find_nodes(op="output")
    results = [str(n.meta.get("val")) if isinstance(n, fx.Node) else n for n in output.args[0]]
    key = (name[:60], tuple(str(n.meta.get("val")) for n in placeholders(gm)), tuple(results))
    known = NAMES.setdefault(key, gm) if len(name) > 60 else gm
    return lambda *inputs: run(known, inputs, run_eager)


NAMES: dict[Any, fx.GraphModule] = {}
"""What ``names_cut_at_sixty_characters`` holds for the whole process."""


@broken(breaks=("contract.shapes", "contract.calls"), programs=("shapes-*", "states-*"))
def computed_sizes_are_kept(gm: fx.GraphModule) -> Called:
    """A size that the graph computes from sizes is computed at the first call."""
    first: dict[fx.Node, int] = {}

    def do(node: fx.Node, args: Sequence[Any], kwargs: Any) -> Any:
        result = run_eager(node, args, kwargs)
        number = type(result) is int and not packet(node).startswith("aten.")
        return first.setdefault(node, result) if number else result

    return lambda *inputs: run(gm, inputs, do)


@broken(
    breaks=("contract.scalars", "contract.shapes", "contract.calls", "contract.assertions", "contract.control"),
    programs=("scalars-*", "shapes-*", "assertions-*", "control-*", "states-*"),
)
def items_are_kept(gm: fx.GraphModule) -> Called:
    """A number that the graph reads out of a tensor is read at the first call."""
    first: dict[fx.Node, Any] = {}

    def do(node: fx.Node, args: Sequence[Any], kwargs: Any) -> Any:
        result = run_eager(node, args, kwargs)
        return first.setdefault(node, result) if packet(node) == "aten._local_scalar_dense" else result

    return lambda *inputs: run(gm, inputs, do)


@broken(
    breaks=("contract.shapes", "contract.calls", "nonzero", "masked_select", "unique", "unique2"),
    programs=("shapes-*", "assertions-*", "calls-*", "states-*"),
)
def capacity_of_the_first_call(gm: fx.GraphModule) -> Called:
    """Memory for a result of data-dependent size is planned at the first call, and what exceeds it is 0."""
    capacity: dict[fx.Node, int] = {}
    dynamic = ("aten.nonzero", "aten.masked_select", "aten.unique", "aten._unique2", "aten.repeat_interleave")

    def do(node: fx.Node, args: Sequence[Any], kwargs: Any) -> Any:
        result = run_eager(node, args, kwargs)
        if packet(node) in dynamic:
            for x in [result] if isinstance(result, Tensor) else result[:1]:
                x[capacity.setdefault(node, len(x)) :] = 0
        return result

    return lambda *inputs: run(gm, inputs, do)


@broken(
    breaks=("contract.calls", "contract.mutation", "contract.layouts", "contract.aliases", "contract.arguments"),
    programs=("mutation-*", "calls-*", "layouts-*", "aliases-*", "arguments-*", "states-*"),
)
def one_storage_is_uploaded_once(gm: fx.GraphModule) -> Called:
    """Arguments of one storage and type are uploaded once, from where the first of them begins."""

    def call(*inputs: Any) -> Any:
        uploaded: dict[Any, Tensor] = {}
        arguments = []
        for x in inputs:
            if isinstance(x, Tensor):
                key = (x.untyped_storage().data_ptr(), x.dtype, x.shape, x.stride())
                arguments.append(uploaded.setdefault(key, x) if x.numel() else x)
            else:
                arguments.append(x)
        return run(gm, arguments, run_eager)

    return call


# -- memory and constants ----------------------------------------------------------------------------------------------


@broken(
    breaks=("contract.calls", "contract.models", "contract.graphs"),
    programs=("calls-*", "models-*", "graphs-*", "states-*"),
)
def literals_are_donated(gm: fx.GraphModule) -> Called:
    """The memory of a tensor that the program contains as a literal is used for a result of its type."""
    literals = [k for k, n in enumerate(placeholders(gm)) if "tensor_constant" in n.name]

    def call(*inputs: Any) -> Any:
        results = run(gm, inputs, run_eager)
        for literal in (inputs[k] for k in literals):
            donee = next((x for x in results if same_type(x, literal)), None)
            if donee is not None:
                literal.detach().copy_(donee.detach())
        return results

    return call


@broken(breaks=("contract.calls", "contract.aliases"), programs=("calls-*", "aliases-*", "mutation-*", "states-*"))
def constant_results_are_shared(gm: fx.GraphModule) -> Called:
    """A result that no argument determines is computed at the first call, and every call returns that tensor."""
    computed: list[Any] = []
    determined: set[fx.Node] = set()
    for node in gm.graph.nodes:
        if node.op == "placeholder" or not determined.isdisjoint(node.all_input_nodes) or draws(gm):
            determined.add(node)
    (output,) = gm.graph.find_nodes(op="output")

    def call(*inputs: Any) -> Any:
        results = list(run(gm, inputs, run_eager))
        if not computed:
            computed[:] = results
        for k, node in enumerate(output.args[0]):
            if isinstance(node, fx.Node) and node not in determined:
                results[k] = computed[k]
            else:
                computed[k] = None
        return tuple(results)

    return call


@broken(breaks=("contract.shapes", "contract.calls"), programs=("shapes-*", "states-*"))
def sums_of_a_dirty_workspace(gm: fx.GraphModule) -> Called:
    """Sums read whole vectors of 8 of a workspace, whose tail an earlier and longer call has written."""
    longest: dict[tuple[fx.Node, int], Tensor] = {}
    symbolic = is_symbolic(gm)

    def do(node: fx.Node, args: Sequence[Any], kwargs: Any) -> Any:
        result = run_eager(node, args, kwargs)
        if not symbolic or packet(node) != "aten.sum" or len(args) < 2 or len(args[1]) != 1 or not args[0].dim():
            return result
        x, d = args[0], args[1][0] % args[0].dim()
        n, before = x.shape[d], longest.get((node, d))
        if before is None or before.shape[d] <= n:
            longest[node, d] = x.detach().clone()
        elif all(a == b for k, (a, b) in enumerate(zip(x.shape, before.shape, strict=True)) if k != d):
            result = result + run_eager(
                node, (before.narrow(d, n, min(-n % 8, before.shape[d] - n)), *args[1:]), kwargs
            )
        return result

    return lambda *inputs: run(gm, inputs, do)


# -- backward passes ---------------------------------------------------------------------------------------------------


@broken(
    breaks=("contract.gradients", "contract.training", "contract.layouts"),
    programs=("gradients-*", "training-*", "layouts-*", "states-*"),
)
def tangents_of_ones_are_folded(gm: fx.GraphModule) -> Called:
    """An incoming gradient that is all ones in the first backward pass is taken to be ones in later passes."""
    ones: dict[int, bool] = {}
    tangents = [is_tangent(n) for n in placeholders(gm)]

    def current(k: int, x: Any) -> Any:
        if not tangents[k] or not isinstance(x, Tensor) or not x.numel():
            return x
        return torch.ones_like(x) if ones.setdefault(k, bool((x == 1).all())) else x

    return lambda *inputs: run(gm, [current(k, x) for k, x in enumerate(inputs)], run_eager)


@broken(
    breaks=("contract.gradients", "contract.training", "contract.models"),
    programs=("gradients-*", "training-*", "buffers-*", "models-*"),
)
def saved_in_bfloat16(gm: fx.GraphModule) -> Called:
    """Activations are kept in bfloat16 from the forward pass to the backward pass."""
    nodes = placeholders(gm)
    backward = is_backward(gm)

    def restored(node: fx.Node, x: Any) -> Any:
        saved = isinstance(x, Tensor) and x.dtype == torch.float32 and not is_tangent(node) and not x.requires_grad
        return x.to(torch.bfloat16).to(x.dtype) if saved and "primals" not in node.name else x

    def call(*inputs: Any) -> Any:
        arguments = [restored(n, x) for n, x in zip(nodes, inputs, strict=True)] if backward else inputs
        return run(gm, arguments, run_eager)

    return call


@broken(breaks=("contract.gradients", "contract.calls"), programs=("gradients-*", "training-*", "calls-*", "states-*"))
def saved_tensors_are_donated(gm: fx.GraphModule) -> Called:
    """A backward pass writes a result where an activation lies that the forward pass saved."""
    nodes = placeholders(gm)
    backward = is_backward(gm)

    def call(*inputs: Any) -> Any:
        results = list(run(gm, inputs, run_eager))
        free = [x for n, x in zip(nodes, inputs, strict=True) if not is_tangent(n) and "primals" not in n.name]
        for k, x in enumerate(results) if backward else ():
            block = next((y for y in free if same_type(x, y)), None)
            if block is not None and not shares(x, inputs):
                free = [y for y in free if y is not block]
                results[k] = block.detach().copy_(x)
        return tuple(results)

    return call


@broken(
    breaks=("contract.gradients", "contract.mutation", "contract.layouts"),
    programs=("gradients-*", "layouts-*", "mutation-*", "states-*"),
)
def incoming_gradient_is_scratch(gm: fx.GraphModule) -> Called:
    """A backward pass multiplies the incoming gradient in place."""
    nodes = placeholders(gm)

    def call(*inputs: Any) -> Any:
        results = run(gm, inputs, run_eager)
        for node, x in zip(nodes, inputs, strict=True) if not any(shares(x, inputs) for x in results) else ():
            if is_tangent(node) and isinstance(x, Tensor) and x.is_floating_point() and x.is_contiguous():
                x.detach().mul_(2)
        return results

    return call


@broken(breaks=("contract.gradients", "contract.training"), programs=("gradients-*", "training-*", "states-*"))
def zero_gradients_are_none(gm: fx.GraphModule) -> Called:
    """A gradient whose elements are all 0 is None."""
    backward = is_backward(gm)

    def call(*inputs: Any) -> Any:
        results = run(gm, inputs, run_eager)
        return tuple(None if backward and isinstance(x, Tensor) and not x.any() else x for x in results)

    return call


@broken(
    breaks=("contract.shapes", "contract.gradients", "contract.calls"),
    programs=("shapes-*", "gradients-*", "training-*", "states-*"),
)
def sizes_of_the_last_forward_pass(gm: fx.GraphModule) -> Called:
    """A backward pass takes symbolic sizes from the last forward pass, which another call may have made."""
    symbols = [str(n.meta["val"]) if isinstance(n.meta.get("val"), torch.SymInt) else "" for n in placeholders(gm)]
    backward = is_backward(gm)

    def call(*inputs: Any) -> Any:
        if not backward:
            SIZES.update({s: x for s, x in zip(symbols, inputs, strict=True) if s})
            return run(gm, inputs, run_eager)
        return run(gm, [SIZES.get(s, x) if s else x for s, x in zip(symbols, inputs, strict=True)], run_eager)

    return call


SIZES: dict[str, Any] = {}
"""What ``sizes_of_the_last_forward_pass`` holds for the whole process."""


# -- exceptions, threads and random numbers ----------------------------------------------------------------------------


@broken(breaks=("contract.lifetimes", "contract.errors"), programs=("errors-*", "assertions-*", "calls-*", "states-*"))
def arguments_of_a_failed_call_stay(gm: fx.GraphModule) -> Called:
    """The arguments of a call that raises stay alive until the next call."""
    held: list[Any] = []

    def call(*inputs: Any) -> Any:
        held[:] = inputs
        results = run(gm, inputs, run_eager)
        held.clear()
        return results

    return call


@broken(breaks=("contract.random", "contract.calls"), programs=("random-*", "calls-*", "states-*"))
def threads_draw_the_same_numbers(gm: fx.GraphModule) -> Called:
    """Each thread but the first draws from a generator of its own, and all of these begin with seed 0."""
    local = threading.local()

    def call(*inputs: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return run(gm, inputs, run_eager)
        if not hasattr(local, "state"):
            local.state = torch.Generator().manual_seed(0).get_state()
        before = torch.get_rng_state()
        torch.set_rng_state(local.state)
        try:
            return run(gm, inputs, run_eager)
        finally:
            local.state = torch.get_rng_state()
            torch.set_rng_state(before)

    return call if draws(gm) else lambda *inputs: run(gm, inputs, run_eager)


@broken(breaks=("contract.random", "contract.calls"), programs=("random-*", "partition-*", "states-*"))
def generator_moves_on_by_one(gm: fx.GraphModule) -> Called:
    """A call moves the generator on by one number, however many it drew."""

    def call(*inputs: Any) -> Any:
        before = torch.get_rng_state()
        results = run(gm, inputs, run_eager)
        torch.set_rng_state(before)
        torch.rand(1)
        return results

    return call if draws(gm) else lambda *inputs: run(gm, inputs, run_eager)


@broken(
    breaks=("contract.scalars", "contract.dtypes", "contract.calls", "contract.buffers"),
    programs=("scalars-*", "dtypes-*", "buffers-*", "calls-*", "states-*"),
)
def zero_d_integers_pass_as_float32(gm: fx.GraphModule) -> Called:
    """A 0-d tensor of integers is passed to kernels as a float32 number."""

    def passed(x: Any) -> Any:
        integer = isinstance(x, Tensor) and not x.dim() and x.dtype in (torch.int32, torch.int64)
        return x.float().to(x.dtype) if integer else x

    writes = any(packet(n) == "aten.copy_" for n in gm.graph.nodes if n.op == "call_function")
    return lambda *inputs: run(gm, inputs if writes else [passed(x) for x in inputs], run_eager)
