"""Compiles one graph to an artifact: what serving engines need for each piece of a model."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import fx

from keel.artifact.graph_cache import is_cache_on
from keel.artifact.graph_key import graph_key
from keel.cache import Cache
from keel.errors import KeelError
from keel.export import ExportedGraph, graph_of
from keel.interrupts import is_interrupt
from keel.packages.boundary_data import boundary_to_data
from keel.packages.load_package import load_package, loaded_package
from keel.packages.package import write_package
from keel.packages.package_file import PackageFile
from keel.packages.package_manifest import manifest_of
from keel.plugin import Backend
from keel.runtime.call_boundary import CallBoundary, leaves_of
from keel.settings import read_settings
from keel.torch_adapter import Boxed, SizesFrom, add_guards, guards_of, traced_program, unflatten

CACHE = Cache("artifact")


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compiled graph. It is called with the graph's inputs, in order, and returns what the graph returns."""

    content: bytes = field(repr=False)
    """The file that ``save`` writes."""
    _call: Any = field(repr=False)

    def __call__(self, *args: Any) -> Any:
        """The results of the graph. Raises KeelError[bad-input] for arguments that do not fit."""
        return self._call(*args)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the artifact to a file: a package (``keel.load_package``, ``keel inspect``)."""
        path = Path(path)
        draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
        draft.write_bytes(self.content)
        draft.replace(path)

    @staticmethod
    def load(
        path: str | os.PathLike[str], *, trusted: bool = False, backends: Sequence[str | Backend] | None = None
    ) -> Artifact:
        """The artifact in a file that ``save`` wrote. Raises as ``load_package`` does."""
        package = load_package(path, trusted=trusted, backends=backends)
        return Artifact(Path(path).read_bytes(), package)


def standalone_compile(
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    dynamic_shapes: SizesFrom = "from_graph",
    backends: Sequence[str | Backend] | None = None,
    strict: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Artifact:
    """Compiles a graph with flat inputs, of Dynamo or of ATen operators, for inference.

    With ``dynamic_shapes="from_graph"`` its sizes are those of the values of its placeholders, as Dynamo makes them;
    with ``"from_tracing_context"`` those that PyTorch is tracing; and with ``"from_example_inputs"`` those of
    ``example_inputs``. The artifact checks in each call that its arguments have these types, and sizes for which the
    graph was traced and compiled.

    Graphs that are the same except for their place in a model are compiled once, also over processes, if the backends
    have a ``fingerprint``. Parameters and buffers of ``graph`` are in the artifact; inputs are not.

    Raises KeelError as ``keel.compile`` does, KeelError[bad-graph] if the graph cannot be made functional, and
    KeelError[bad-artifact] if what it is compiled to cannot be saved.
    """
    settings = read_settings(None, {"backends": backends, "strict": strict, **(options or {})})
    try:
        traced = traced_program(graph, example_inputs, dynamic_shapes)
    except ValueError as why:
        raise KeelError("bad-graph", "The graph cannot be compiled by itself.", {"PyTorch": str(why)}) from why
    made = graph_of(traced, settings)
    guards = guards_of(made.captured.fake_mode)
    made = replace(made, boundary=replace(made.boundary, guards=guards))
    key = _key(made)
    content = None if key is None else CACHE.get(key)
    if content is not None and (artifact := _loaded(content, made, backends)) is not None:
        return artifact
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "artifact.keel")
        run, boundary = write_package(made, path, (), None, ())
        content = path.read_bytes()
    if key is not None:
        CACHE.put(key, content)
    return Artifact(content, _Call(made, run, boundary))


@dataclass(frozen=True)
class _Call:
    """The call of a graph that was compiled in this process."""

    graph: ExportedGraph
    run: Boxed
    boundary: CallBoundary

    def __call__(self, *args: Any) -> Any:
        leaves = leaves_of(self.graph.arguments, args, {})
        return unflatten(self.graph.results, self.boundary.call(self.run, leaves, self.graph.stored))


def _key(made: ExportedGraph) -> tuple[str, ...] | None:
    """The key of a graph wherever it is in a model; None if it is not kept."""
    if not is_cache_on():
        return None
    try:
        return *graph_key(made.captured, made.settings, paths=False), json.dumps(boundary_to_data(made.boundary))
    except BaseException as raised:  # of a plugin's fingerprint, too
        if is_interrupt(raised):
            raise
        return None


def _loaded(content: bytes, made: ExportedGraph, backends: Sequence[str | Backend] | None) -> Artifact | None:
    """The artifact in an entry of the cache. None if the entry cannot be used, or if compiling it added conditions on
    sizes that the graph does not have.
    """
    try:
        file = PackageFile.of(memoryview(bytearray(content)), Path("artifact"))
        package = loaded_package(file, manifest_of(file), backends=backends)
    except BaseException as raised:
        if is_interrupt(raised):
            raise
        return None
    return Artifact(content, package) if add_guards(made.captured.fake_mode, package.guards) else None
