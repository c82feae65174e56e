"""From Dynamo's graph to functional ATen graphs and back: AOTAutograd traces, partitions and wraps; Keel compiles.

AOTAutograd's runtime wrapper handles everything that is not a value: it restores aliases among outputs and inputs,
undoes the merging of equal inputs, connects forward and backward, and writes back the mutated inputs whose mutation
autograd must see. It leaves other mutations in the graphs, and ``mutations`` removes them. Compiled code is functional.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import sha256
from time import perf_counter
from traceback import format_exception
from typing import Any, Literal

import torch
from torch import fx
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.export import ExportedProgram

from keel.errors import KeelError
from keel.torch_adapter.backward_mutations import keep_saved, read_late, saves_unchecked
from keel.torch_adapter.donated import donated_names, mark_donated
from keel.torch_adapter.inlined_calls import Decomposed, drop_detached, inline_calls, nothing_decomposed, outline_calls
from keel.torch_adapter.lazy_module import lazy_module
from keel.torch_adapter.meta_bugs.apply import apply_fixes
from keel.torch_adapter.meta_bugs.upsample import resampled
from keel.torch_adapter.mutations import Mutations, taken_out
from keel.torch_adapter.profiling import graph_range, in_range
from keel.torch_adapter.recorder import fake_mode_of
from keel.torch_adapter.regions import without_writes
from keel.torch_adapter.saved_layouts import Images, lay_out_saved, no_images
from keel.torch_adapter.scalar_writes import keep_scalar_writes
from keel.torch_adapter.shape_guards import assumes_a_float
from keel.torch_adapter.stored_tensors import Stored, StoredTensor, stored_by_name, stored_tensors
from keel.torch_adapter.tidy_graph import attribute, lift_constants, tidy
from keel.torch_adapter.traced_assertions import factorizations_checked, keep_silent_assertions, read_apart

aten = torch.ops.aten
Kind = Literal["inference", "forward", "backward"]
Boxed = Callable[[list[Any]], Sequence[Any]]
"""A function that takes its inputs in a list, which it empties so that they can be freed early, and returns its
outputs.
"""


@dataclass(frozen=True)
class Captured:
    """One graph to compile: functional ATen, with ``meta["val"]`` on every node that computes a value. Its last
    placeholders may be ``constants``, by name: tensors that are part of the program rather than inputs. ``static`` are
    the numbers of the inputs that have the same memory on every call: parameters, buffers, and in a backward graph the
    saved tensors. If it ``shares``, an input takes over the memory of a result, so that memory must not be reused.
    ``overwrites`` are the numbers of results and of the inputs that these are copied to after each call: the graph may
    write such a result to the memory of its input, and return that. Capturing took ``seconds``, 0 if that is unknown.
    ``stored`` says which of the model's tensors an input or a constant is, by placeholder. Constants that are among
    these may be written to between calls, unless the graph is ``frozen``; other constants never change. The program
    gets the first ``results`` results of an inference or forward graph, and may hold them for as long as it likes. If
    PyTorch saves compiled graphs, ``is_saved``, and what compiles this one should make it a ``Saveable``. Saved tensors
    that the program does not see are ``donated``, by placeholder: a graph may write to what ``owned`` makes of them.
    """

    gm: fx.GraphModule
    kind: Kind
    constants: Mapping[str, torch.Tensor]
    static: tuple[int, ...] = ()
    shares: bool = False
    overwrites: tuple[tuple[int, int], ...] = ()
    seconds: float = 0.0
    stored: Mapping[str, StoredTensor] = field(default_factory=dict)
    frozen: bool = False
    results: int = 0
    is_saved: bool = False
    donated: frozenset[str] = frozenset()

    @property
    def fake_mode(self) -> Any:
        """The fake mode in which decompositions are recorded; None if the graph has no tensors."""
        return fake_mode_of(self.gm)


Compiler = Callable[[Captured], Boxed]
State = Mapping[str, Any]


@dataclass(frozen=True)
class Saveable:
    """A compiled graph that PyTorch can save. ``state`` returns what is saved of it, given the mutations that follow
    it, or raises ValueError with a reason.
    """

    run: Boxed
    state: Callable[[Mutations | None], State]

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        return self.run(args)


@dataclass(frozen=True)
class Saves:
    """How PyTorch saves compiled graphs: under a key that has ``tag`` in it. ``restore``, a function of a module, makes
    a compiled graph of the state of a ``Saveable``.
    """

    tag: str
    restore: Callable[[State], Boxed]


def capture(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    compiler: Compiler,
    images: Images = no_images,
    decomposed: Decomposed = nothing_decomposed,
    saves: Saves | None = None,
) -> Callable[..., Any]:
    """Captures ``gm`` and returns a callable with Dynamo's calling convention that runs what ``compiler`` returns.
    ``compiler`` is called for an inference graph, or for a forward graph and (now or when first needed) a backward
    graph. Values of ``images`` that the forward graph saves are saved channels-last. What calls are ``decomposed`` to
    says what can be computed again in backward (see ``inlined_calls``). Only PyTorch's dispatcher
    decomposes operators here. With ``saves``, PyTorch saves what it made of ``gm`` together with the compiled graphs,
    and if it has saved the same before, ``compiler`` is not called.
    """
    # Importing these takes longer than importing torch, and a package that only defines a backend does not need them.
    from torch._dynamo.utils import counters, flatten_graph_inputs
    from torch._functorch import config
    from torch._functorch.aot_autograd import aot_module_simplified
    from torch.fx._lazy_graph_module import _use_lazy_graph_module

    from keel.torch_adapter.output_code import saved_compiler, saving

    if any(isinstance(x, list | tuple | dict) for x in example_inputs):  # the whole backward of compiled autograd
        more = compiler, images, decomposed, saves
        return flatten_graph_inputs(gm, example_inputs, lambda flat, inputs: capture(flat, inputs, *more))
    read_apart(gm)
    stored = stored_tensors(gm, example_inputs)
    restore = None if saves is None else saves.restore
    of = partial(_compile_function, compiler, torch._C._get_mkldnn_enabled(), stored, perf_counter(), restore)
    # The backward graph is compiled inside the user's frame, or even inside autograd's thread.
    backward = torch.compiler.disable(of("backward"), reason="Keel compiles here")
    # DDP cuts a graph into buckets of gradients. By this count it sees that AOTAutograd has captured the piece: then it
    # makes the first call itself, whose results are fake, and keeps what the backward graph of that piece needs.
    counters["aot_autograd"]["total"] += 1
    # PyTorch's donated buffers would forbid backward(retain_graph=True); Keel has its own. Tokens, which order effects,
    # are created in the graph; otherwise they would be inputs that are None. oneDNN is off, so that PyTorch decomposes
    # operators such as LSTM on a CPU too: graphs can be lowered for any device. To repeat random numbers of a
    # checkpoint, an operator on a GPU would take a generator, not a value of a graph; so it takes a state.
    with (
        _use_lazy_graph_module(True),
        config.patch(donated_buffer=False, unlift_effect_tokens=True, graphsafe_rng_functionalization=False),
        _onednn(False),
        resampled(gm),
        keep_silent_assertions(gm),
        keep_scalar_writes(gm),
        factorizations_checked(),
        nullcontext() if saves is None else saving(_key(saves.tag, gm, stored)),
    ):
        return aot_module_simplified(
            gm,
            example_inputs,
            fw_compiler=of("forward") if saves is None else saved_compiler(of("forward")),
            bw_compiler=backward,
            inference_compiler=of("inference"),
            partition_fn=partial(_partition, images, decomposed),
            decompositions={},
            keep_inference_input_mutations=True,
        )


def expects_backward(example_inputs: Sequence[Any]) -> bool:
    """True if AOTAutograd may trace a graph of these inputs with its backward graph."""
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs)


def is_saved_by_force() -> bool:
    """True if the user asked PyTorch to save the compiled graph, as ``aot_compile`` does."""
    from torch._functorch import config

    return bool(getattr(config, "force_autograd_cache", False))


def _key(tag: str, gm: torch.nn.Module, stored: Stored) -> str:
    """What the key of a saved result has in addition to PyTorch's: names of the model's tensors, which plugins get, and
    lines of the program, which errors show.
    """
    traces = [str(node.meta.get("stack_trace")) for node in gm.graph.nodes] if isinstance(gm, fx.GraphModule) else []
    tensors = [f"{number} {each.kind} {each.name}" for number, each in stored.items()]
    return sha256("\n".join([tag, *tensors, *traces]).encode("utf-8", "replace")).hexdigest()


def _compile_function(
    compiler: Compiler,
    onednn: bool,
    stored: Stored,
    began: float,
    restore: Callable[[State], Boxed] | None,
    kind: Kind,
) -> Callable[..., Boxed]:
    """The function that AOTAutograd calls to compile a graph of ``kind``, whose capture ``began`` at that time. It runs
    ``compiler`` with the user's setting of oneDNN.
    """

    def compile_graph(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Boxed:
        without_writes(gm)
        objects = _objects_returned(gm)
        mutations = taken_out(gm)
        captured = tidied(gm, kind)
        static, shares = _static(gm, kind, captured.constants), mutations is not None and mutations.shares
        with _onednn(onednn):
            overwrites = mutations.overwrites if mutations is not None and kind == "inference" else ()
            seconds = 0.0 if kind == "backward" else perf_counter() - began  # a backward graph waits for the forward
            named = stored_by_name(captured.gm, static, stored) if kind == "inference" else {}
            results = _results_of_program(captured.gm, kind)
            results -= mutations.values if mutations and kind == "inference" else 0
            captured = replace(captured, static=static, shares=shares, overwrites=overwrites, stored=named)
            captured = replace(captured, results=results, donated=donated_names(captured.gm))
            start = perf_counter()
            compiled = compiler(replace(captured, seconds=seconds, is_saved=restore is not None))
            took = perf_counter() - start
        if kind != "backward":
            _none_donated()
        run = finished(compiled if not objects else _with_objects(compiled, objects), kind, mutations)
        if restore is None:
            return run
        from keel.torch_adapter.output_code import saved_graph

        loses_guards = assumes_a_float(fake_mode_of(captured.gm)) and not is_saved_by_force()

        def state() -> State:
            if objects or not isinstance(compiled, Saveable):
                raise ValueError(f"The {kind} graph has no form that can be saved.")
            if loses_guards:
                raise ValueError(
                    f"The {kind} graph is for one value of a float, and PyTorch saves guards on sizes alone."
                )
            return compiled.state(mutations)

        return saved_graph(run, kind, state, restore, took)

    return compile_graph


def finished(run: Boxed, kind: Kind, mutations: Mutations | None) -> Boxed:
    """A compiled graph with what follows each call: its results are not views for autograd, and the mutations are
    applied.
    """
    if isinstance(run, Saveable):
        run = run.run
    if kind != "backward":
        run = _no_views(run)
    if mutations is not None:
        # If PyTorch checks the versions of all saved tensors, a backward's own mutations would prevent a second run.
        run = mutations.after(run, hidden=kind != "backward" or not saves_unchecked())
    run = in_range(run, graph_range(kind))
    if kind == "backward":  # autograd calls it, possibly while Dynamo traces frames
        run = torch.compiler.disable(run, reason="Keel has compiled this")
    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _partition(images: Images, decomposed: Decomposed, joint: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    """Splits a joint graph into the forward and the backward graph."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    apply_fixes(joint)  # before saved values become inputs of backward
    read_late(joint, kwargs["num_fwd_outputs"])
    drop_detached(joint.graph)
    inline_calls(joint.graph, decomposed)
    forward, backward = min_cut_rematerialization_partition(joint, *args, **kwargs)
    outline_calls(forward.graph)
    outline_calls(backward.graph)
    mark_donated(forward, backward, kwargs["num_fwd_outputs"])
    lay_out_saved(forward, backward, kwargs["num_fwd_outputs"], images)
    keep_saved(forward, backward, kwargs["num_fwd_outputs"])
    return forward, backward


def _no_views(run: Boxed) -> Boxed:
    """Wraps ``run`` so that autograd does not treat its results as views: a view of a result that requires a gradient
    would require one too. AOTAutograd itself makes the results that have to be views, or marks them as without
    gradient.
    """

    def without_views(args: list[Any]) -> Sequence[Any]:
        return [r.detach() if isinstance(r, torch.Tensor) and r._is_view() else r for r in run(args)]

    return without_views


def _objects_returned(gm: fx.GraphModule) -> dict[int, Any]:
    """Removes results that are not values of the graph, such as the device mesh of a DTensor in an attribute. Returns
    them by their number.
    """
    output = gm.graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    objects: dict[int, Any] = {}
    for i, node in enumerate(results):
        if isinstance(node, fx.Node) and node.op == "get_attr":
            value = attribute(gm, str(node.target))
            if not isinstance(value, torch.Tensor):
                objects[i] = getattr(value, "real_obj", value)  # the trace has a fake object in its place
                results[i] = None
    if objects:
        output.args = (tuple(results),)
        for node in gm.graph.find_nodes(op="get_attr"):
            if not node.users:
                gm.graph.erase_node(node)
        gm.recompile()
    return objects


def _with_objects(run: Boxed, objects: Mapping[int, Any]) -> Boxed:
    def filled(args: list[Any]) -> Sequence[Any]:
        return [objects.get(i, r) for i, r in enumerate(run(args))]

    return filled


@contextmanager
def _onednn(enabled: bool) -> Iterator[None]:
    """Sets PyTorch's oneDNN switch, which all threads share."""
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


def _results_of_program(gm: fx.GraphModule, kind: Kind) -> int:
    """The number of results that the program gets of an inference or forward graph; they precede all others."""
    context = TracingContext.try_get()
    if kind == "inference" or context is None or context.fw_metadata is None:
        return len(gm.graph.output_node().args[0]) if kind != "backward" else 0  # type: ignore[arg-type]
    return context.fw_metadata.num_forward if kind == "forward" else 0


def _none_donated() -> None:
    """Declares that no buffers are donated. Otherwise PyTorch refuses to run a lazily compiled backward twice."""
    context = TracingContext.try_get()
    if context and context.fw_metadata:
        context.fw_metadata.bw_donated_idxs = []


def real_tensors() -> AbstractContextManager[Any]:
    """A context in which new tensors are real. While PyTorch compiles, it makes fake tensors otherwise."""
    return unset_fake_temporarily()


@contextmanager
def unwrapped() -> Iterator[None]:
    """Lets a KeelError raised inside reach the user unchanged. Dynamo wraps every other error of a backend."""
    try:
        yield
    except KeelError as e:
        passing = _passing()(e)
        if e.__cause__ is not None:  # Dynamo drops causes
            passing.add_note("".join(format_exception(e.__cause__)))
        raise passing from e.__cause__


@cache
def _passing() -> Callable[[KeelError], KeelError]:
    """A subclass of KeelError that Dynamo does not wrap."""
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
    """Turns the tensor attributes of the graph into its last placeholders, so that backends see no ``get_attr`` of a
    tensor, and removes operators that do not change values.
    """
    constants = tidy(gm)
    return Captured(lazy_module(gm, gm.graph, type(gm).__name__), kind, constants)


def lifted(gm: fx.GraphModule, kind: Kind) -> Captured:
    """A graph that was tidied before it was saved, with its constants as placeholders. No call in it is run."""
    constants = lift_constants(gm)
    return Captured(lazy_module(gm, gm.graph, type(gm).__name__), kind, constants)


def functional(program: ExportedProgram) -> ExportedProgram:
    """An exported program without mutations and without decompositions. Only ``item`` is decomposed: PyTorch cannot
    trace it if it is data-dependent that there is one element.
    """
    with keep_silent_assertions(program.graph_module), factorizations_checked():
        decomposed: ExportedProgram = program.run_decompositions({aten.item.default: aten._local_scalar_dense.default})
        return decomposed


def compiled_graphs() -> int:
    """The number of graphs that Dynamo has passed to backends in this process since ``torch.compiler.reset()``."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
