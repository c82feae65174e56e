"""From Dynamo's graph to functional ATen graphs and back: AOTAutograd traces, partitions and wraps; Keel compiles.

AOTAutograd's runtime wrapper owns what is not a value: it makes outputs that alias inputs or each other alias again,
undoes the merging of equal inputs, ties forward and backward together, and writes back those mutated inputs that
autograd must see written.  The other mutations it leaves in the graphs, and ``mutations`` takes them out.  Compiled
code is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from traceback import format_exception
from typing import Any, Literal

import torch
from torch import fx
from torch._guards import TracingContext
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.export import ExportedProgram
from torch.utils._python_dispatch import _disable_current_modes

from keel.errors import KeelError
from keel.torch_adapter.assertions import assert_promises
from keel.torch_adapter.backward_mutations import keep_saved, read_late, saves_unchecked
from keel.torch_adapter.meta_bugs.apply import apply_fixes
from keel.torch_adapter.meta_bugs.upsample import resampled
from keel.torch_adapter.mutations import taken_out
from keel.torch_adapter.recorder import fake_mode_of
from keel.torch_adapter.regions import without_writes
from keel.torch_adapter.saved_layouts import Images, lay_out_saved, no_images
from keel.torch_adapter.squeezed import assert_kept
from keel.torch_adapter.traced_assertions import factorizations_checked, read_apart, said

aten = torch.ops.aten
Kind = Literal["inference", "forward", "backward"]
Boxed = Callable[[list[Any]], Sequence[Any]]
"""Takes its inputs in a list, which it empties so that they can be freed early; returns its outputs."""


@dataclass(frozen=True)
class Captured:
    """One graph to compile: functional ATen, a value (``meta["val"]``) on every node that computes one.

    Its last placeholders may be ``constants``, by name: tensors that are part of the program rather than inputs.
    ``static`` are the numbers of the inputs that lie in the same memory on every call: parameters, buffers, and in a
    backward graph what the forward graph saved.  Where it ``shares``, an input takes over the memory of a result, which
    nothing may use again.
    """

    gm: fx.GraphModule
    kind: Kind
    constants: Mapping[str, torch.Tensor]
    static: tuple[int, ...] = ()
    shares: bool = False

    @property
    def fake_mode(self) -> Any:
        """Under which decompositions are recorded; None if the graph has no tensors."""
        return fake_mode_of(self.gm)


Compiler = Callable[[Captured], Boxed]


def capture(
    gm: fx.GraphModule, example_inputs: Sequence[Any], compiler: Compiler, images: Images = no_images
) -> Callable[..., Any]:
    """What Dynamo gets back for ``gm``: a callable with its calling convention, made of what ``compiler`` makes.

    ``compiler`` is called for an inference graph, or for a forward and (now or when first needed) a backward graph.
    What the forward graph saves of its ``images`` is saved channels-last.
    Nothing is decomposed but what PyTorch's dispatcher decomposes by itself.
    """
    # Importing these takes longer than importing torch, and who only writes a backend does not need them.
    from torch._dynamo.utils import flatten_graph_inputs
    from torch._functorch import config
    from torch._functorch.aot_autograd import aot_module_simplified

    if any(isinstance(x, list | tuple | dict) for x in example_inputs):  # the whole backward of compiled autograd
        return flatten_graph_inputs(gm, example_inputs, lambda flat, given: capture(flat, given, compiler, images))
    read_apart(gm)
    of = partial(_compile_function, compiler, torch._C._get_mkldnn_enabled())
    # The backward graph is compiled inside the user's frame, or even inside autograd's thread.
    backward = torch.compiler.disable(of("backward"), reason="Keel compiles here")
    # Donated buffers would forbid backward(retain_graph=True), and no one here reuses their memory.  Tokens, which
    # order effects, are made in the graph; else they would be inputs that are None.  Without oneDNN PyTorch decomposes
    # what it would else give to it because tensors are on a CPU (LSTM): graphs are to be lowered for any device.  To
    # draw again what a checkpoint drew, an operator on a GPU would take a generator, but a graph cannot hold one as a
    # value; so it takes a state.
    with (
        config.patch(donated_buffer=False, unlift_effect_tokens=True, graphsafe_rng_functionalization=False),
        _onednn(False),
        resampled(gm),
        said(gm),
        factorizations_checked(),
    ):
        return aot_module_simplified(
            gm,
            example_inputs,
            fw_compiler=of("forward"),
            bw_compiler=backward,
            inference_compiler=of("inference"),
            partition_fn=partial(_partition, images),
            decompositions={},
            keep_inference_input_mutations=True,
        )


def _compile_function(compiler: Compiler, onednn: bool, kind: Kind) -> Callable[..., Boxed]:
    """What AOTAutograd calls to compile a graph of that kind: ``compiler``, with oneDNN as the user has set it."""

    def compile_graph(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Boxed:
        without_writes(gm)
        objects = _objects_returned(gm)
        mutations = taken_out(gm)
        captured = tidied(gm, kind)
        static, shares = _static(gm, kind, captured.constants), mutations is not None and mutations.shares
        with _onednn(onednn):
            run = compiler(replace(captured, static=static, shares=shares))
        if kind != "backward":
            run = _no_views(run)
            _none_donated()
        if objects:
            run = _with_objects(run, objects)
        if mutations is not None:
            # Where PyTorch checks all that is saved, a backward's own mutations would keep it from running twice.
            run = mutations.after(run, hidden=kind != "backward" or not saves_unchecked())
        if kind == "backward":  # which autograd calls, where Dynamo may be tracing frames
            run = torch.compiler.disable(run, reason="Keel has compiled this")
        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    return compile_graph


def _partition(images: Images, joint: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    """The forward and the backward graph of a joint one."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    apply_fixes(joint)  # before what is saved becomes a backward input
    read_late(joint, kwargs["num_fwd_outputs"])
    forward, backward = min_cut_rematerialization_partition(joint, *args, **kwargs)
    lay_out_saved(forward, backward, kwargs["num_fwd_outputs"], images)
    keep_saved(forward, backward, kwargs["num_fwd_outputs"])
    return forward, backward


def _no_views(run: Boxed) -> Boxed:
    """``run`` with results that autograd does not know as views: a view of a result that requires a gradient would
    require one, too.  AOTAutograd makes views of what is to be one, or marks it as without a gradient.
    """

    def apart(args: list[Any]) -> Sequence[Any]:
        return [r.detach() if isinstance(r, torch.Tensor) and r._is_view() else r for r in run(args)]

    return apart


def _objects_returned(gm: fx.GraphModule) -> dict[int, Any]:
    """Removes results that are not values of the graph, such as the device mesh of a DTensor in an attribute, and
    returns them by number."""
    output = gm.graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    found: dict[int, Any] = {}
    for i, node in enumerate(results):
        if isinstance(node, fx.Node) and node.op == "get_attr":
            value = _attribute(gm, str(node.target))
            if not isinstance(value, torch.Tensor):
                found[i] = getattr(value, "real_obj", value)  # a fake one stands for it in the trace
                results[i] = None
    if found:
        output.args = (tuple(results),)
        for node in gm.graph.find_nodes(op="get_attr"):
            if not node.users:
                gm.graph.erase_node(node)
        gm.recompile()
    return found


def _with_objects(run: Boxed, objects: Mapping[int, Any]) -> Boxed:
    def filled(args: list[Any]) -> Sequence[Any]:
        return [objects.get(i, r) for i, r in enumerate(run(args))]

    return filled


@contextmanager
def _onednn(enabled: bool) -> Iterator[None]:
    """PyTorch's switch, which is one for all threads."""
    was = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(enabled)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was)


def _static(gm: fx.GraphModule, kind: Kind, constants: Mapping[str, Any]) -> tuple[int, ...]:
    if kind == "backward":
        saved = enumerate(gm.graph.find_nodes(op="placeholder"))
        return tuple(i for i, n in saved if not n.name.startswith("tangents") and n.name not in constants)
    context = TracingContext.try_get()
    return tuple(context.fw_metadata.static_input_indices) if context and context.fw_metadata else ()


def _none_donated() -> None:
    """Says that backward may use nothing up. Where it was not asked for, PyTorch does not know, and refuses to run a
    backward that it compiles when first needed a second time.
    """
    context = TracingContext.try_get()
    if context and context.fw_metadata:
        context.fw_metadata.bw_donated_idxs = []


def real_tensors() -> AbstractContextManager[Any]:
    """Where tensors that are made are real: while it compiles PyTorch makes fake ones."""
    return unset_fake_temporarily()


@contextmanager
def unwrapped() -> Iterator[None]:
    """Lets a KeelError that is raised inside reach the user as it is; Dynamo wraps every other error of a backend."""
    try:
        yield
    except KeelError as e:
        passing = _passing()(e)
        if e.__cause__ is not None:  # Dynamo drops causes
            passing.add_note("".join(format_exception(e.__cause__)))
        raise passing from e.__cause__


@cache
def _passing() -> Callable[[KeelError], KeelError]:
    """A kind of KeelError that Dynamo lets through, made of any other."""
    from torch._dynamo.exc import ShortenTraceback

    class Passing(KeelError, ShortenTraceback):
        def __init__(self, e: KeelError) -> None:
            Exception.__init__(self, str(e))
            KeelError.__init__(self, e.code, e.what, e.reasons, e.where, e.do)
            self.first_useful_frame = None

    Passing.__name__ = Passing.__qualname__ = KeelError.__qualname__
    Passing.__module__ = KeelError.__module__
    return Passing


def tidied(gm: fx.GraphModule, kind: Kind) -> Captured:
    """The graph with its tensor attributes made its last placeholders, so that no backend meets a ``get_attr`` of a
    tensor, and without operators that do nothing to values."""
    apply_fixes(gm)
    attributes: dict[str, list[fx.Node]] = {}
    for node in gm.graph.find_nodes(op="get_attr"):
        if isinstance(_attribute(gm, str(node.target)), torch.Tensor):
            attributes.setdefault(str(node.target), []).append(node)
    mode = fake_mode_of(gm)
    constants: dict[str, torch.Tensor] = {}
    last = next((n for n in reversed(gm.graph.find_nodes(op="placeholder"))), None)
    for target, nodes in attributes.items():
        tensor = _attribute(gm, target)
        with gm.graph.inserting_after(last) if last else gm.graph.inserting_before(next(iter(gm.graph.nodes))):
            last = gm.graph.placeholder(target.replace(".", "_").lstrip("_"))
        known = nodes[0].meta.get("val")
        if known is None:
            known = mode.from_tensor(tensor, static_shapes=True) if mode is not None else tensor
        last.meta = {"val": known}
        constants[last.name] = tensor
        for node in nodes:
            node.replace_all_uses_with(last)
            gm.graph.erase_node(node)
    for op in (aten.detach.default, aten.alias.default):  # what matters to autograd only
        for node in gm.graph.find_nodes(op="call_function", target=op):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    for node in gm.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, OpOverload) and not node.target._schema.returns:
            node.meta.setdefault("val", None)
    for graph in (m.graph for m in gm.modules() if isinstance(m, fx.GraphModule)):
        for node in graph.find_nodes(op="call_function", target=aten.item.default):  # of tracing before dispatch
            node.target = aten._local_scalar_dense.default
        _made_of_numbers(graph)
    assert_kept(gm)
    assert_promises(gm)
    gm.recompile()
    return Captured(gm, kind, constants)


def _made_of_numbers(graph: fx.Graph) -> None:
    """Has tensors made of numbers that stand for tensors: vmap converts such, and gradients conjugate them."""
    for node in graph.find_nodes(op="call_function", target=aten._to_copy.default):
        if isinstance(node.args[0], fx.Node) and not isinstance(node.args[0].meta.get("val"), torch.Tensor):
            _make(node, node.args[0], node.meta["val"].dtype)
    for node in graph.nodes:
        if isinstance(node.target, OpOverload) and not node.all_input_nodes and _stand_for_tensors(node):
            with unset_fake_temporarily(), _disable_current_modes():
                value = node.target(*node.args, **node.kwargs)
                number = value.item()
            _make(node, number, value.dtype)


def _stand_for_tensors(node: fx.Node) -> bool:
    """Whether all that a call computes with is numbers, though its operator takes tensors."""
    if torch.Tag.nondeterministic_seeded in node.target.tags:  # type: ignore[union-attr]
        return False
    parameters = node.target._schema.arguments  # type: ignore[union-attr]
    tensors = [a for p, a in zip(parameters, node.args, strict=False) if str(p.type) == "Tensor"]
    return bool(tensors) and all(isinstance(a, int | float | complex) for a in tensors)


def _make(node: fx.Node, number: Any, dtype: torch.dtype) -> None:
    node.target, node.args = aten.scalar_tensor.default, (number,)
    node.kwargs = {"dtype": dtype, **{k: v for k, v in node.kwargs.items() if k == "device"}}


def functional(program: ExportedProgram) -> ExportedProgram:
    """An exported program without mutations, its operators whole. But for ``item``: PyTorch cannot trace it whole where
    only the run tells that there is one element."""
    with said(program.graph_module), factorizations_checked():
        found: ExportedProgram = program.run_decompositions({aten.item.default: aten._local_scalar_dense.default})
        return found


def _attribute(gm: fx.GraphModule, target: str) -> Any:
    value: Any = gm
    for name in target.split("."):
        value = getattr(value, name, None)
    return value


def compiled_graphs() -> int:
    """How many graphs Dynamo has handed to backends in this process since ``torch.compiler.reset()``."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
