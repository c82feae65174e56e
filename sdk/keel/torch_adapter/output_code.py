"""Compiled graphs in the form that PyTorch saves: in its AOTAutograd cache, in cache artifacts, and by ``aot_compile``.

PyTorch keeps what AOTAutograd made of a graph together with the compiled graphs, if these are of its class
``OutputCode``. It pickles them. Imported only when a graph is captured or loaded, since its base class takes long to
import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from torch._functorch import config
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
from torch._inductor.output_code import OutputCode
from torch.compiler import config as compiler_config

Boxed = Callable[[list[Any]], Sequence[Any]]
State = Mapping[str, Any]


class SavedGraph(OutputCode):
    """A compiled graph that PyTorch can save. ``state`` returns what is saved, of types that pickle without running
    code of the file's choice, or raises ValueError with a reason. ``restore`` makes the compiled graph of it, and is a
    function of a module. ``run`` is the compiled graph; None until a saved one is restored. It took ``seconds`` to
    compile.
    """

    def __init__(
        self, run: Boxed | None, state: Callable[[], State], restore: Callable[[State], Boxed], seconds: float = 0.0
    ) -> None:
        self.run, self._state, self._restore = run, state, restore
        self._time_taken_ns = int(seconds * 1e9)
        self._boxed_call = True  # of the instance: PyTorch copies the attributes of instances to its wrappers

    def __call__(self, inputs: Any) -> Any:
        assert self.run is not None
        return self.run(inputs)

    def __reduce__(self) -> Any:
        try:
            return _saved, (self._state(), self._restore)
        except ValueError as why:
            raise BypassAOTAutogradCache(str(why)) from why

    def prepare_for_serialization(self) -> None:
        """PyTorch calls this of a copy, which has the state alone."""

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """PyTorch calls this after loading."""
        if self.run is None:
            self.run = self._restore(self._state())

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Kernels are saved with the graph."""


def saved_graph(
    run: Boxed, kind: str, state: Callable[[], State], restore: Callable[[State], Boxed], seconds: float
) -> SavedGraph:
    """A compiled graph of ``kind`` that PyTorch may save. It took ``seconds`` to compile."""
    graph = SavedGraph(run, state, restore, seconds)
    if kind == "backward":
        save_until_first_call(graph)
    return graph


def _saved(state: State, restore: Callable[[State], Boxed]) -> SavedGraph:
    return SavedGraph(None, lambda: state, restore)


def saving(tag: str) -> AbstractContextManager[Any]:
    """While AOTAutograd runs in this context, it looks for its result under a key that has ``tag`` in it, and saves its
    result together with the compiled graphs.
    """
    stack = ExitStack()
    stack.enter_context(config.patch(bundled_autograd_cache=True))
    stack.enter_context(compiler_config.patch(cache_key_tag=tag))  # type: ignore[attr-defined]
    return stack


def saved_compiler(compiler: Callable[..., Boxed]) -> Any:
    """The compiler of a graph, marked as one that returns a ``SavedGraph``, which AOTAutograd may save."""
    return SerializableAOTDispatchCompiler(OutputCode, compiler)  # type: ignore[arg-type]


def save_until_first_call(graph: SavedGraph) -> None:
    """Has PyTorch save ``graph``, a backward graph that is compiled when it is first needed. PyTorch decides between
    its return and its first call whether to save it, and by a setting that is no longer as it was during capture.
    """
    if config.bundled_autograd_cache:
        return
    run, patch = graph.run, config.patch(bundled_autograd_cache=True)
    assert run is not None

    def first(args: list[Any]) -> Sequence[Any]:
        patch.__exit__(None, None, None)
        graph.run = run
        return run(args)

    graph.run = first
    patch.__enter__()
