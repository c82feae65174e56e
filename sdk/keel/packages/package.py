"""Writes packages: a compiled program in one file, with its weights, for one or several machines.

The file has the compiled graph as data, the graph of each part, the plan, the machine code of each variant, and the
weights. ``package_file`` describes the file, and ``load_package`` reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from keel.artifact.compiled_graph import graph_to_data, part_to_data
from keel.artifact.graph_grammar import checked_for_saving
from keel.artifact.runtime_program import RuntimeGraph, runtime_program
from keel.artifact.saved_graph import cannot_save, reason_of
from keel.cache import package_fingerprint
from keel.compiler import compile_for
from keel.documents import Malformed, bad_file, bytes_of
from keel.errors import KeelError
from keel.events import Event, GraphCompiled
from keel.export import ExportedGraph, exported_graph
from keel.loop_level import compile_kernels
from keel.packages.boundary_data import boundary_to_data
from keel.packages.package_file import PackageFile, PackageWriter, written
from keel.packages.package_manifest import BOUNDARY, FORMAT, GRAPH, MANIFEST, PART_GRAPHS, PLAN, PROGRAM, fingerprint_of
from keel.packages.weight_data import Weight, add_weights
from keel.plugin import Backend, CodeObject
from keel.runtime.call_boundary import CallBoundary
from keel.runtime.link_program import LinkProgram
from keel.runtime.part_interface import BuiltPart
from keel.serialize.codec import Data, NotSerializable, encode
from keel.settings import Settings, read_settings
from keel.spec.versions import CURRENT
from keel.torch_adapter import Boxed, Captured, tensor_type, tree_text

Target = str | Mapping[str, str]
"""The machine of a variant: one name for all loop targets of the program, or one for each backend."""


def package(
    program: ExportedProgram,
    path: str | os.PathLike[str],
    *,
    backends: Sequence[str | Backend] | None = None,
    targets: Sequence[Target] = (),
    strict: bool = False,
    freeze: bool = False,
    options: Mapping[str, Any] | None = None,
    weights_file: str | os.PathLike[str] | None = None,
    certificates: Sequence[str | os.PathLike[str]] = (),
) -> None:
    """Compiles ``program`` as ``compile_exported`` does, and writes a package to ``path``, which ``load_package`` and
    the C++ runtime load.

    Each of ``targets`` is a variant of the machine code, for another machine than this one: a name for all loop
    targets (``"x86-64-v3"``), or names by backend (``{"cpp": "x86-64-v3", "triton": "sm_80"}``). A package is loaded in
    the first variant that the machine can run, so the fastest comes first. Without targets there is one variant, for
    this machine.

    With ``weights_file`` the weights are in that file, in the folder of the package. Several packages can share it:
    weights that it lacks are added. The package keeps the hashes of ``certificates`` of ``keel conform``.

    Raises KeelError as ``compile_exported`` does. Raises KeelError[bad-artifact] if the compiled program cannot be
    saved, and KeelError[bad-option] if a backend has no such target or a file cannot be written.
    """
    if weights_file is not None and Path(weights_file).resolve().parent != Path(path).resolve().parent:
        raise KeelError("bad-option", f"{weights_file} is not in the folder of {path}.", do="Write both to one folder.")
    passed = {"backends": backends, "strict": strict, "freeze": freeze, **(options or {})}
    graph = exported_graph(program, read_settings(None, passed))
    write_package(graph, Path(path), targets, None if weights_file is None else Path(weights_file), certificates)


def write_package(
    graph: ExportedGraph,
    path: Path,
    targets: Sequence[Target],
    weights_file: Path | None,
    certificates: Sequence[str | os.PathLike[str]],
) -> tuple[Boxed, CallBoundary]:
    """Compiles a graph and writes its package. Returns what it was compiled to, and what is around a call of that.
    Raises as ``package`` does.
    """
    hashes = {Path(each).name: _hash(each) for each in certificates}
    try:
        with written(path) as writer:
            store = _Store(graph, writer, tuple(targets) or (None,))
            run = compile_for(store, graph.settings, store.listen)
            if not store.made:
                raise NotSerializable("A backend failed when it was compiled; see the warnings.")
            constants, file = store.weights(weights_file)
            manifest = {
                "format": FORMAT,
                **_origin(graph.settings),
                "arguments": tree_text(graph.arguments),
                "results": tree_text(graph.results),
                "variants": store.variants,
                "weights": [weight.as_json() for weight in constants],
                "weights_file": file,
                "certificates": hashes,
            }
            writer.add(MANIFEST, _text(manifest))
        return run, store.graph.boundary
    except Malformed as wrong:
        raise bad_file(weights_file or path, wrong, what="It is not a file of weights.") from wrong
    except ValueError as why:  # NotSerializable, and trees that have no name outside of this process
        raise cannot_save("compiled", reason_of(why)) from why
    except OSError as e:
        raise KeelError("bad-option", f"{path} cannot be written.", {"system": e.strerror or str(e)}) from e


def _hash(certificate: str | os.PathLike[str]) -> str:
    """The hash of a file. Raises KeelError[bad-option] if it does not exist, and KeelError[bad-file]."""
    try:
        return hashlib.sha256(bytes_of(certificate)).hexdigest()
    except Malformed as wrong:
        raise bad_file(certificate, wrong, what="It is not a certificate.") from wrong


def _origin(settings: Settings) -> dict[str, Data]:
    """What a package was made by, and how its backends were set."""
    return {
        "keel": package_fingerprint("keel"),
        "opset": str(CURRENT),
        "torch": torch.__version__,
        "machine": {"system": platform.system(), "processor": platform.machine()},
        "backends": [{"name": b.name, "fingerprint": fingerprint_of(b)} for b in settings.backends],
        "options": encode(dict(settings.options)),
        "strict": settings.strict,
        "frozen": settings.freeze,
    }


def _text(data: Data) -> bytes:
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()


@dataclass
class _Store:
    """Adds a compiled graph to a package, as soon as it is compiled, in all variants."""

    graph: ExportedGraph
    writer: PackageWriter
    targets: tuple[Target | None, ...]
    made: bool = False
    seconds: float = 0.0
    variants: list[dict[str, Data]] = field(default_factory=list)
    _constants: tuple[str, ...] = ()
    _saved: dict[str, str] = field(default_factory=dict)  # the members with the bytes of parts, by name

    @property
    def captured(self) -> Captured:
        return self.graph.captured

    def listen(self, event: Event) -> None:
        if isinstance(event, GraphCompiled):
            self.writer.add(PLAN, _text(event.plan.as_json()))

    def stored(
        self, run: Boxed, program: LinkProgram, parts: Sequence[BuiltPart], guards: Sequence[sympy.Basic]
    ) -> Boxed:
        """Adds the graph. Raises NotSerializable."""
        data = checked_for_saving(graph_to_data(program, parts, (), self.keep), GRAPH)
        self._saved = {p["name"]: p["graph"]["saved"] for p in data["parts"] if "saved" in p.get("graph", {})}
        self.writer.add(GRAPH, _text(data))
        self.writer.add(PART_GRAPHS, _text({part.interface.name: part_to_data(part) for part in parts}))
        boundary = self.graph.boundary
        self.graph = replace(self.graph, boundary=replace(boundary, guards=(*boundary.guards, *guards)))
        self.writer.add(BOUNDARY, _text(boundary_to_data(self.graph.boundary)))
        stored = (which for side, which in self.graph.boundary.end_inputs if side == "stored")
        self._constants = tuple(dict.fromkeys((*program.constants, *map(str, stored))))
        for number, target in enumerate(self.targets):
            self.variants.append(self.variant(number, target, program, parts))
        self.made = True
        return run

    def keep(self, content: bytes, folder: str = "parts") -> str:
        """Adds bytes under their hash; returns the name of the member."""
        name = f"{folder}/{hashlib.sha256(content).hexdigest()}"
        self.writer.add(name, content)
        return name

    # -- variants -----------------------------------------------------------------------------------------------------

    def variant(
        self, number: int, target: Target | None, program: LinkProgram, parts: Sequence[BuiltPart]
    ) -> dict[str, Data]:
        """Adds the machine code for a target; returns what the manifest says of it."""
        code = {part.interface.name: made for part in parts if (made := self.code(part, target)) is not None}
        objects = [each for made in code.values() for _, each in made]
        data = {
            "name": _name(target),
            "needs": sorted({need for each in objects for need in each.needs}),
            "code": {part: [_code_data(member, each) for member, each in made] for part, made in code.items()},
        }
        try:
            made = runtime_program(self.runtime_graph(program, parts, code))
        except NotSerializable as why:
            return data | {"program": None, "why_no_program": str(why)}
        name = PROGRAM.format(number)
        self.writer.add(name, _text(made))
        return data | {"program": name, "why_no_program": None}

    def runtime_graph(
        self,
        program: LinkProgram,
        parts: Sequence[BuiltPart],
        code: Mapping[str, Sequence[tuple[str, CodeObject]]],
    ) -> RuntimeGraph:
        """What the C++ runtime runs."""
        boundary, constants = self.graph.boundary, self.captured.constants
        weights = {n: (str(self.describe(n)["name"]), tensor_type(constants[n])) for n in self._constants}
        return RuntimeGraph(boundary, program, parts, code, weights, self._saved)

    def code(self, part: BuiltPart, target: Target | None) -> list[tuple[str, CodeObject]] | None:
        """Adds the machine code of a part for a target: each object with its member. None for a part without any, whose
        kernels are built when it is loaded.
        """
        loop_part, owner = part.loop_part, part.graph.part.owner
        machine = target.get(owner.name) if isinstance(target, Mapping) else target
        if loop_part is None or owner.target is None or (owner.target.compile is None and machine is None):
            return None
        objects = compile_kernels(owner.target, loop_part.sources, part.ctx, machine)
        return [(self.keep(each.content, "code"), each) for each in objects]

    # -- weights ------------------------------------------------------------------------------------------------------

    def describe(self, placeholder: str) -> dict[str, Any]:
        """The name, the kind and the replaceability of a constant."""
        origin = self.captured.stored.get(placeholder)
        if origin is None:
            return {"name": placeholder, "kind": "constant", "written": False, "replaceable": False}
        replaceable = not self.captured.frozen or origin.written
        return {"name": origin.name, "kind": origin.kind, "written": origin.written, "replaceable": replaceable}

    def weights(self, file: Path | None) -> tuple[list[Weight], str | None]:
        """Adds the weights, to the package or to ``file``. Returns them, and the name of the file."""
        tensors = {name: self.captured.constants[name] for name in self._constants}
        changed = [name for name, origin in self.captured.stored.items() if origin.written and name in tensors]
        if file is None:
            return add_weights(self.writer, tensors, self.describe, changed), None
        before = PackageFile.opened(file) if file.exists() else None
        with written(file) as writer:
            if before is not None:
                for name in before.members:
                    writer.add(name, before.member(name))
            return add_weights(writer, tensors, self.describe, changed), file.name


def _name(target: Target | None) -> str:
    """The name of a variant."""
    if isinstance(target, Mapping):
        return ",".join(f"{backend}={name}" for backend, name in sorted(target.items()))
    return target or "native"


def _code_data(member: str, code: CodeObject) -> dict[str, Data]:
    """What a manifest says of machine code."""
    return {
        "member": member,
        "kind": code.kind,
        "target": code.target,
        "needs": [list(need) for need in code.needs],
        "functions": [{"name": f.name, "source": f.source, "launch": dict(f.launch)} for f in code.functions],
    }
