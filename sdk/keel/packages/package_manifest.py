"""The manifest of a package: what it is, who made it and what it needs. Reading it runs nothing."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keel.documents import Item, Malformed, bad_file, parsed
from keel.errors import KeelError
from keel.packages.package_file import LONGEST, PackageFile
from keel.packages.weight_data import Weight
from keel.plugin import Backend, CodeObject, KernelFunction

FORMAT = 1
"""The version of packages that this Keel writes, and the newest that it reads."""
MANIFEST, GRAPH, PART_GRAPHS, PLAN, BOUNDARY = "package.json", "graph.json", "parts.json", "plan.json", "boundary.json"
PROGRAM = "variants/{}/program.json"
_MOST_TEXT = 1 << 12
_HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Variant:
    """The machine code of a package for one kind of machine: its objects by part, as data, and what they need of the
    machine. ``program`` is the member that the C++ runtime loads; where it is None, ``why_no_program`` says why.
    """

    name: str
    needs: tuple[tuple[str, str], ...]
    code: Mapping[str, Any]
    program: str | None
    why_no_program: str | None


@dataclass(frozen=True)
class Manifest:
    """What a package is. ``backends`` have the hashes of their fingerprints, None for one without a fingerprint."""

    keel: str
    opset: str
    torch: str
    machine: Mapping[str, str]
    backends: Mapping[str, str | None]
    options: Any
    strict: bool
    frozen: bool
    arguments: str
    results: str
    variants: tuple[Variant, ...]
    weights: tuple[Weight, ...]
    weights_file: str | None
    certificates: Mapping[str, str]


def fingerprint_of(backend: Backend) -> str | None:
    """The hash of a backend's fingerprint; None if it has none."""
    return None if backend.fingerprint is None else hashlib.sha256(backend.fingerprint().encode()).hexdigest()


def opened(path: str | os.PathLike[str]) -> tuple[PackageFile, Manifest]:
    """Opens a package and reads its manifest. Raises KeelError[bad-file] for any other file, KeelError[bad-artifact]
    for a package of a newer Keel, and KeelError[bad-option] if there is no such file.
    """
    path = Path(path)
    if not path.is_file():
        raise KeelError("bad-option", f"There is no file {path}.")
    try:
        file = PackageFile.opened(path)
        return file, manifest_of(file)
    except Malformed as wrong:
        raise bad_file(path, wrong, what="It is not a package that keel.package wrote.") from wrong


def manifest_of(file: PackageFile) -> Manifest:
    """The manifest of a package. Raises Malformed, and KeelError[bad-artifact] for a package of a newer Keel."""
    data = parsed(bytes(file.member(MANIFEST)), MANIFEST)
    number = data.get("format") if isinstance(data, dict) else None
    if type(number) is int and number > FORMAT:
        raise KeelError(
            "bad-artifact",
            f"{file.path} cannot be loaded.",
            {"package": f"It has format {number}; this Keel reads up to format {FORMAT}."},
            do="Load it with a newer Keel.",
        )
    return _manifest(Item(data, MANIFEST))


def _manifest(item: Item) -> Manifest:
    names = ("format", *Manifest.__dataclass_fields__)
    fields = item.record(names)
    fields["format"].integer(1, FORMAT)
    texts = {name: fields[name].text(1 << 22) for name in ("keel", "opset", "torch", "arguments", "results")}
    machine = {name: each.text(_MOST_TEXT) for name, each in fields["machine"].table().items()}
    backends = dict(_backend(each) for each in fields["backends"].items())
    file = fields["weights_file"]
    if file.value is not None and (name := file.text(LONGEST)) != Path(name).name:
        file.refuse("It is not the name of a file in the folder of the package.")
    return Manifest(
        **texts,
        machine=machine,
        backends=backends,
        options=fields["options"].value,
        strict=fields["strict"].flag(),
        frozen=fields["frozen"].flag(),
        variants=tuple(_variant(each) for each in fields["variants"].items()),
        weights=tuple(Weight.of(each) for each in fields["weights"].items()),
        weights_file=file.value,
        certificates={
            name: each.like(_HASH, "the hash of a file") for name, each in fields["certificates"].table().items()
        },
    )


def _backend(item: Item) -> tuple[str, str | None]:
    fields = item.record(("name", "fingerprint"))
    mark = fields["fingerprint"]
    return fields["name"].text(_MOST_TEXT), None if mark.value is None else mark.like(_HASH, "the hash of a text")


def _variant(item: Item) -> Variant:
    fields = item.record(("name", "needs", "code", "program", "why_no_program"))
    needs = [each.items(count=2) for each in fields["needs"].items()]
    program, why = fields["program"], fields["why_no_program"]
    return Variant(
        fields["name"].text(_MOST_TEXT),
        tuple((kind.text(_MOST_TEXT), feature.text(_MOST_TEXT)) for kind, feature in needs),
        {part: _code(each) for part, each in fields["code"].table().items()},
        None if program.value is None else program.text(LONGEST),
        None if why.value is None else why.prose(),
    )


def _code(item: Item) -> Any:
    """The objects with the machine code of a part, as data. Raises Malformed unless all of their fields are there."""
    for each in item.items():
        code_object(each, lambda member: b"")
    return item.value


def code_object(item: Item, read: Callable[[str], bytes]) -> CodeObject:
    """Machine code as a manifest describes it; ``read`` returns the bytes of a member. Raises Malformed."""
    fields = item.record(("member", "kind", "target", "needs", "functions"))
    needs = [each.items(count=2) for each in fields["needs"].items()]
    return CodeObject(
        kind=fields["kind"].text(_MOST_TEXT),
        content=read(fields["member"].text(_MOST_TEXT)),
        target=fields["target"].text(_MOST_TEXT),
        needs=tuple((kind.text(_MOST_TEXT), feature.text(_MOST_TEXT)) for kind, feature in needs),
        functions=tuple(map(_function, fields["functions"].items())),
    )


def _function(item: Item) -> KernelFunction:
    fields = item.record(("name", "source", "launch"))
    fields["launch"].table()
    return KernelFunction(
        name=fields["name"].text(_MOST_TEXT), source=fields["source"].integer(0), launch=fields["launch"].value
    )
