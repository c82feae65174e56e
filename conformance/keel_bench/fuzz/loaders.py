"""What reads files, each with real files to begin with and with how they are mutated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import keel
from keel import KeelError, file_readers
from keel.testing import find
from keel_conformance.certificate import certificate_list, signing, verify
from keel_conformance.harness import journal, merge_shards, waivers
from keel_conformance.levels import needs
from keel_conformance.workers.result_log import ResultLog

from ..closure.jobs import Job, Row
from . import program_seeds, seeds, signed_files
from .folders import as_member, private, unpacked
from .mutate import Mutation, of_bytes, of_json, of_lines, of_words, one_of, packed, unzipped, within
from .package_bytes import member, members
from .runtime_reader import read_program
from .signed_files import repaired, with_digests, with_seal, with_signature
from .stub_backends import backends


@dataclass(frozen=True)
class Loader:
    """``load`` reads a file; ``seeds`` gives real files, and ``mutate`` changes one. Before a file is read, ``lay_out``
    makes of it what ``load`` reads, such as a folder of the files in an archive.
    """

    name: str
    load: Callable[[Path], Any]
    seeds: Callable[[], list[bytes]]
    mutate: Mutation
    lay_out: Callable[[Path], Path] = lambda path: path


# -- what is only data ------------------------------------------------------------------------------------------------


def _kernel(path: Path) -> Any:
    kernel = file_readers.kernel_in(path)
    keel.loops.show(kernel)
    return file_readers.sources_of(kernel, [_rendering()])


@cache
def _rendering() -> keel.Backend:
    """The backend for which kernels are printed as source."""
    return find("cpp")


def _measurement(path: Path) -> Any:
    return ResultLog(path, Job, lambda job, row: Row(**row)).resume()


def _signature(folder: Path) -> None:
    held = signing.read_signature(folder)
    assert held is not None
    _no_faults(signing.wrong_signature(folder, {"seal": held["seal"], "made": held["signed"]}, held["key"]))


def _registry(path: Path) -> None:
    _no_faults(certificate_list.check(path))


def _key(path: Path) -> Any:
    """A file is a public key, or else a private one."""
    try:
        return signing.public_key(str(path))
    except KeelError:
        return signing.read_key(path)


def _certificate(path: Path) -> None:
    _no_faults(verify.form(path))


def _shards(folder: Path) -> Any:
    return merge_shards.merge_shards([folder / name for name in SHARDS])


def _no_faults(sentences: list[str]) -> None:
    """Raises KeelError[bad-file] for a file of which a command says what is wrong."""
    if sentences:
        raise KeelError("bad-file", " ".join(sentences))


# -- programs, until machine code would be loaded ---------------------------------------------------------------------


def _program(path: Path) -> None:
    package = keel.load_package(path, trusted=True, recompile=True, backends=backends())
    try:
        package(object())  # which fits no program; how arguments are nested is read for a call
    except KeelError as e:
        if e.code != "bad-input":
            raise


def _saved_graph(path: Path) -> Any:
    try:
        parts = unzipped(path.read_bytes())
        state = program_seeds.states()[int(parts["state"])]
        changed: dict[str, Any] = {"graph": parts["graph"], "mutations": parts["mutations.json"].decode()}
    except Exception as e:  # the archive is not one of Keel's files
        raise KeelError("bad-file", "It is not the archive that this test made.") from e
    changed["mutations"] = None if changed["mutations"] == "null" else changed["mutations"]
    return file_readers.restored_graph({**state, **changed}, backends())


_DATA = one_of(of_json, of_json, of_json, of_words, of_bytes)
_LINES = one_of(of_lines, of_lines, of_words, of_bytes)
_GRAPH = one_of(
    *([within("graph.json", of_json)] * 6),
    within("graph.json", of_words),
    within("graph.json", of_bytes),
    within("constants.pt", of_bytes, "data.pkl"),
    within("constants.pt", of_bytes),
    of_bytes,
)
_MANIFEST = one_of(*([member("package.json", of_json)] * 4), member("package.json", of_words), members, of_bytes)
_PROGRAM = one_of(
    *([member("graph.json", of_json)] * 8),
    *([member("boundary.json", of_json)] * 3),
    *([member("parts.json", of_json)] * 2),
    *([member("package.json", of_json)] * 2),
    member("graph.json", of_words),
    member("graph.json", of_bytes),
    member("boundary.json", of_words),
    member("parts.json", of_words),
    members,
)
_RUNTIME = one_of(
    *([member("variants/0/program.json", of_json)] * 5),
    member("variants/0/program.json", of_words),
    member("variants/0/program.json", of_bytes),
    member("package.json", of_json),
    members,
    of_bytes,
)
_SAVED = one_of(
    *([within("graph", packed(of_json))] * 6),
    within("graph", packed(of_words)),
    within("graph", of_bytes),
    *([within("mutations.json", of_json)] * 2),
    within("mutations.json", of_words),
)
_REPRO = one_of(
    *([within("repro.json", _DATA)] * 2),
    *([within("graph.keel", of_json, "graph.json")] * 3),
    within("graph.keel", of_bytes),
    of_bytes,
)
_SIGNATURE = one_of(repaired(of_json, with_signature), repaired(of_words, with_signature), _DATA)
_REGISTRY = one_of(*([repaired(of_lines, with_signature, lines=True)] * 3), _LINES)
_CERTIFICATE = one_of(*([repaired(of_json, with_seal)] * 3), _DATA)
_LOCK = one_of(*([repaired(of_json, with_digests)] * 3), repaired(of_words, with_digests), _DATA)

_SHARDS = one_of(within("1.jsonl", _LINES), within("2.jsonl", _LINES))
GRAPH, FACTS = "graph.keel", "repro.json"
SHARDS = ("1.jsonl", "2.jsonl")

LOADERS: Mapping[str, Loader] = {
    loader.name: loader
    for loader in (
        Loader("graph", keel.serialize.load_graph, seeds.graphs, _GRAPH),
        Loader("repro", file_readers.load_repro, program_seeds.repros, _REPRO, unpacked(GRAPH, FACTS)),
        Loader("inspect", file_readers.inspection, program_seeds.packages, _MANIFEST),
        Loader("package", _program, program_seeds.packages, _PROGRAM),
        Loader("runtime", read_program, program_seeds.packages, _RUNTIME),
        Loader("saved", _saved_graph, program_seeds.saved_graphs, _SAVED),
        Loader("kernel", _kernel, seeds.kernels, one_of(of_words, of_words, of_bytes)),
        Loader("lock", file_readers.changes_of_lock, signed_files.locks, _LOCK),
        Loader("sheets", keel.cost.read_sheets, seeds.sheets, _DATA),
        Loader("waivers", lambda path: waivers.read(path, "acme"), seeds.waivers, one_of(of_words, of_bytes)),
        Loader("log", journal.read, seeds.logs, _LINES),
        Loader("shards", _shards, signed_files.shards, _SHARDS, unpacked(*SHARDS, alone_as=journal.FILE)),
        Loader("needs", needs.needs_in, signed_files.needs, _DATA, as_member(needs.FILE)),
        Loader("certificate", _certificate, signed_files.certificates, _CERTIFICATE),
        Loader("signature", _signature, signed_files.signatures, _SIGNATURE, as_member(signing.SIGNATURE)),
        Loader("registry", _registry, signed_files.registries, _REGISTRY),
        Loader("key", _key, signed_files.keys, one_of(of_words, of_bytes), private),
        Loader("report", verify.read_report, seeds.reports, _DATA),
        Loader("measurement", _measurement, seeds.measurements, _LINES),
    )
}
