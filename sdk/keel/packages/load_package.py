"""Loads packages that ``keel.package`` wrote."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import sympy
import torch

from keel.artifact.compiled_graph import ReadGraph, read_graph
from keel.artifact.graph_grammar import check_compiled, check_part_graph
from keel.artifact.read_part import Attachments, reading
from keel.documents import Item, Malformed, bad_file, parsed, shown
from keel.errors import KeelError
from keel.packages.boundary_data import boundary_from_data, verify_boundary
from keel.packages.package_file import PackageFile
from keel.packages.package_manifest import (
    BOUNDARY,
    GRAPH,
    MANIFEST,
    PART_GRAPHS,
    Manifest,
    Variant,
    code_object,
    fingerprint_of,
    opened,
)
from keel.packages.weight_data import FOLDER, Weight, tensor_of
from keel.plugin import Backend, CodeObject, CompileContext, Constant
from keel.runtime.call_boundary import CallBoundary, leaves_of
from keel.runtime.link import CompiledPart, link
from keel.serialize.codec import Data, NotSerializable, decode
from keel.serialize.tree_specs import nested
from keel.settings import Settings, read_settings
from keel.torch_adapter import Boxed, Tree, registered_containers, tree_of, unflatten

MOST_MARKS = 1 << 26
"""The most marks between the values of a compiled graph: one of a model with ten thousand parts has some million."""


def load_package(
    path: str | os.PathLike[str],
    *,
    trusted: bool = False,
    recompile: bool = False,
    weights: Mapping[str, torch.Tensor] | None = None,
    check_weights: bool = True,
    backends: Sequence[str | Backend] | None = None,
) -> Package:
    """Loads a package that ``keel.package`` wrote, in its first variant that this machine can run.

    A package is a program with machine code. Loading it runs code of the one who made it, so it is refused unless it is
    ``trusted``. ``keel inspect`` shows what a package is without running anything.

    Its backends must be installed, or passed as ``backends``. With ``recompile``, parts whose machine code does not run
    here are compiled here. ``weights`` are used in place of those in the file, by name; they must have the same types.
    The weights are mapped to memory, and read once to compare their checksums, unless ``check_weights`` is false.

    Raises KeelError[bad-file] if the file is not a whole package, KeelError[bad-artifact] if it does not fit this
    machine or process, or is not trusted, KeelError[bad-option] if there is no such file or weight, and errors of
    backends.
    """
    file, manifest = opened(path)
    if not trusted:
        raise KeelError(
            "bad-artifact",
            f"{path} is not loaded.",
            {"package": f"It is a program for {', '.join(manifest.backends)}, and it is not trusted."},
            do="Pass trusted=True if you would run the programs of those who made it.",
        )
    return loaded_package(file, manifest, recompile, weights or {}, check_weights, backends)


def loaded_package(
    file: PackageFile,
    manifest: Manifest,
    recompile: bool = False,
    weights: Mapping[str, torch.Tensor] = MappingProxyType({}),
    check_weights: bool = True,
    backends: Sequence[str | Backend] | None = None,
) -> Package:
    """The package in a file that is trusted. Raises as ``load_package`` does."""
    try:
        return _Loading(file, manifest, recompile, backends).package(weights, check_weights)
    except (Malformed, NotSerializable) as wrong:
        place = wrong if isinstance(wrong, Malformed) else Malformed("", str(wrong))
        raise bad_file(file.path, place, what="It is not a package that this Keel can load.") from wrong


@dataclass(frozen=True, eq=False)
class Package:
    """A loaded package. It is called as the program was exported. ``variant`` is the one that runs."""

    manifest: Manifest
    variant: str
    weights: Mapping[str, torch.Tensor]
    """The weights by name. They may be written to, if ``is_replaceable`` says so, which does not change the file."""
    _run: Boxed
    _boundary: CallBoundary
    _stored: Mapping[str, torch.Tensor]
    _trees: Callable[[], tuple[Tree, Tree]]

    @property
    def guards(self) -> tuple[sympy.Basic, ...]:
        """The conditions on sizes that it was compiled for."""
        return self._boundary.guards

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results, nested as the program's. Raises KeelError[bad-input] for arguments that do not fit."""
        arguments, results = self._trees()
        return unflatten(results, self.call_flat(leaves_of(arguments, args, kwargs)))

    def call_flat(self, leaves: Sequence[Any]) -> list[Any]:
        """The leaves of the results, of the leaves of the arguments."""
        return list(self._boundary.call(self._run, list(leaves), self._stored))

    def replace_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Copies new values to weights, by name. The file does not change. Raises KeelError[bad-option] for a weight of
        another type, and for one that the package does not have, or from which something was computed.
        """
        known = {weight.name: weight for weight in self.manifest.weights}
        for name, value in weights.items():
            _check_weight(name, known, value)
        with torch.no_grad():
            for name, value in weights.items():
                self.weights[name].copy_(value)


def _check_weight(name: str, known: Mapping[str, Weight], value: torch.Tensor) -> None:
    """Raises KeelError[bad-option] unless ``value`` can stand for a weight."""
    weight, why = known.get(name), None
    if weight is None:
        why = "The package has no weight of this name."
    elif not weight.replaceable:
        why = "The program was compiled for its value."
    elif (str(value.dtype).removeprefix("torch."), tuple(value.shape)) != (weight.dtype, weight.shape):
        why = f"It is {value.dtype} {[*value.shape]}, not {weight.dtype} {[*weight.shape]}."
    if why is not None:
        raise KeelError("bad-option", "The weight cannot be replaced.", {name: why})


@dataclass
class _Loading:
    """Loads one package."""

    file: PackageFile
    manifest: Manifest
    recompile: bool
    backends: Sequence[str | Backend] | None

    def package(self, replaced: Mapping[str, torch.Tensor], check: bool) -> Package:
        for name in self.file.members:
            if not name.startswith(FOLDER):
                self.file.member(name)  # also what this machine does not need: a damaged file is not loaded
        settings, data = self.settings(), self.json(GRAPH)
        check_compiled(data, GRAPH)
        weights, constants = self.weights(replaced, check)
        ctx = CompileContext(
            lasting=frozenset(constants), constants=self.known(constants), spends_memory=settings.spends_memory
        )
        graph, boundary = read_graph(data, settings, ctx), boundary_from_data(self.json(BOUNDARY))
        verify_boundary(boundary, graph.program, constants)
        variant, parts = self.compiled(graph, self.stale(settings))
        run = link(graph.program, parts, constants)
        return Package(self.manifest, variant, weights, run, boundary, constants, _Trees(self.manifest))

    def compiled(self, graph: ReadGraph, stale: Collection[str]) -> tuple[str, list[CompiledPart]]:
        """The name of the first variant that this machine can run, and the parts for it."""
        reasons = dict[str, str]()
        for variant in self.manifest.variants:
            try:
                return variant.name, graph.compiled(Attachments(self.read, self.code(variant), stale))
            except KeelError as raised:
                if raised.code not in ("not-here", "bad-artifact"):
                    raise
                reasons[variant.name] = next(iter((raised.reasons or {}).values()), raised.what)
        if self.recompile and self.manifest.variants:
            first, graphs = self.manifest.variants[0], Item(self.json(PART_GRAPHS), PART_GRAPHS).table()
            attached = Attachments(self.read, self.code(first), stale, partial(_part_graph, graphs))
            return first.name, graph.compiled(attached)
        raise KeelError(
            "bad-artifact",
            f"{self.file.path} does not run here.",
            reasons,
            do="Pass recompile=True, or package it for this machine: keel package --target.",
        )

    def stale(self, settings: Settings) -> frozenset[str]:
        """The backends that are installed in another version than the one that compiled the package."""
        now = {backend.name: fingerprint_of(backend) for backend in settings.backends}
        return frozenset(name for name, mark in self.manifest.backends.items() if now.get(name) != mark)

    def settings(self) -> Settings:
        names = [*self.manifest.backends] if self.backends is None else self.backends
        with reading(f"{MANIFEST}.options"):
            options = decode(self.manifest.options, _nothing, _nothing)
        if not isinstance(options, dict):
            raise Malformed(f"{MANIFEST}.options", "It is not a table of options.")
        return read_settings(None, {**options, "backends": names, "strict": self.manifest.strict})

    def json(self, name: str) -> Data:
        return parsed(self.read(name), name, most_marks=MOST_MARKS)

    def read(self, name: Data) -> bytes:
        """The bytes of a member."""
        return bytes(self.file.member(str(name), checked=False))

    # -- machine code -------------------------------------------------------------------------------------------------

    def code(self, variant: Variant) -> dict[str, tuple[CodeObject, ...]]:
        """The machine code of a variant, by part."""
        parts = Item(variant.code, f"{MANIFEST}.variants.{variant.name}").table()
        return {part: tuple(code_object(each, self.read) for each in of.items()) for part, of in parts.items()}

    # -- weights ------------------------------------------------------------------------------------------------------

    def weights(
        self, replaced: Mapping[str, torch.Tensor], check: bool
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """The weights by name and by placeholder."""
        known = {weight.name: weight for weight in self.manifest.weights}
        for name, value in replaced.items():
            _check_weight(name, known, value)
        source, tensors = self.weights_file(), dict[int, torch.Tensor]()
        for weight in self.manifest.weights:
            if weight.name in replaced:
                tensors[weight.tensor] = _like(weight, replaced[weight.name])
        for weight in self.manifest.weights:
            if weight.tensor not in tensors:
                tensors[weight.tensor] = tensor_of(weight, source.member(weight.member, checked=check))
        by_name = {weight.name: tensors[weight.tensor] for weight in self.manifest.weights}
        return by_name, {weight.placeholder: tensors[weight.tensor] for weight in self.manifest.weights}

    def weights_file(self) -> PackageFile:
        """The file with the weights."""
        if self.manifest.weights_file is None:
            return self.file
        path = self.file.path.parent / self.manifest.weights_file
        if not path.is_file():
            raise KeelError("bad-option", f"There is no file {path}, which has the weights of {self.file.path}.")
        return PackageFile.opened(path)

    def known(self, constants: Mapping[str, torch.Tensor]) -> dict[str, Constant]:
        """What backends may know of the constants."""
        result = {}
        for weight in self.manifest.weights:
            if weight.kind == "constant":
                result[weight.placeholder] = Constant(kind="constant", value=constants[weight.placeholder])
            elif not weight.written:
                value = constants[weight.placeholder] if self.manifest.frozen else None
                result[weight.placeholder] = Constant(kind=weight.kind, name=weight.name, value=value)  # type: ignore[arg-type]
        return result


def _like(weight: Weight, value: torch.Tensor) -> torch.Tensor:
    """A tensor for a weight: the user's if it has the strides and the device, else a copy."""
    if value.stride() == weight.strides and str(value.device) == weight.device:
        return value.detach()
    made = torch.empty_strided(weight.shape, weight.strides, dtype=value.dtype, device=weight.device)
    return made.copy_(value)


def _part_graph(graphs: Mapping[str, Item], name: str) -> Data:
    """The graph of a part. Raises Malformed."""
    if name not in graphs:
        raise Malformed(PART_GRAPHS, f"It lacks {shown(name)}.")
    check_part_graph(graphs[name].value, graphs[name].place)
    return graphs[name].value


def _nothing(name: str) -> Any:
    raise NotSerializable(f"{name} is not an option.")


@dataclass
class _Trees:
    """How arguments and results are nested. They are read when a call needs them, since their containers may be of a
    package that the user imports later, or never.
    """

    manifest: Manifest
    _trees: tuple[Tree, Tree] | None = None

    def __call__(self) -> tuple[Tree, Tree]:
        if self._trees is None:
            self._trees = (self._tree("arguments"), self._tree("results"))
        return self._trees

    def _tree(self, name: str) -> Tree:
        try:
            return tree_of(nested(Item(getattr(self.manifest, name), name)), registered_containers())
        except (ValueError, TypeError) as e:
            why = e.why if isinstance(e, Malformed) else str(e)
            raise KeelError(
                "bad-artifact", "The package cannot be called with nested values.", {name: why}, do="Use call_flat."
            ) from e
