"""The lock: the whole operator set as canonical JSON, the same bytes on every PyTorch.

``opset-<version>.json`` beside this file is written by ``keel spec lock``.  Once a version is in ``released.json``,
with the hash of its lock, that lock never changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from keel.documents import Item, Malformed, bad_file, parsed, text_of
from keel.errors import KeelError
from keel.spec.op import Op
from keel.spec.opset import MEMBERS
from keel.spec.rules import Out
from keel.spec.versions import CURRENT, Version

FOLDER = Path(__file__).parent
Lock = Mapping[str, Any]


def lock(members: Iterable[Op] = tuple(MEMBERS.values()), version: Version = CURRENT) -> Lock:
    """The declarations as data."""
    results = {op.name: _member(op) for op in sorted(members, key=lambda op: op.name)}
    return {"opset": str(version), "digest": digest(results), "members": results}


def text(locked: Lock) -> str:
    """A lock as it lies in its file."""
    return json.dumps(locked, indent=1, sort_keys=True) + "\n"


def digest(data: Any) -> str:
    """The sha256 of a value's canonical JSON."""
    return sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _member(op: Op) -> dict[str, Any]:
    data = {
        "kind": op.kind,
        "family": op.family,
        "profile": op.profile,
        "overloads": list(op.overloads),
        "doc": " ".join(op.doc.split()),
        "clauses": {label: clause.text for label, clause in op.cited},
        "results": results(op),
        "operands": operands(op),
        "compute": op.compute.text if op.compute is not None else None,
        "requires": [r.sentence for r in op.requires],
        "dtypes": sorted(map(name_of, op.dtypes)),
        "decomposition": None if op.kind != "composite" else "PyTorch's" if op.decompose is None else "Keel's",
        "budget": {name_of(d): _present({"ulps": b.ulps, "times": b.times}) for d, b in op.budget.items()},
        "tags": sorted(op.tags),
        "reason": op.reason,
    }
    return {**data, "digest": digest(data)}


def _present(data: Mapping[str, float | None]) -> dict[str, float]:
    return {k: float(v) for k, v in data.items() if v is not None}


def operands(op: Op) -> list[str]:
    """What broadcasts to one another in normal form: operands, or their batch dimensions."""
    return [f"batch({name})" if name in op.own else name for name in op.operands]


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def results(op: Op) -> Any:
    """The formulas of the results' types; a sentence where one rule gives them all; None where they follow from the
    decomposition, or nothing is promised.
    """
    match op.out:
        case None:
            return "What the call was traced with." if op.kind == "primitive" else None
        case tuple(outs):
            return [_formulas(o) for o in outs]
        case rule:
            return " ".join((rule.__doc__ or "").split()) or None


def _formulas(out: Out) -> dict[str, Any]:
    return {
        "dtype": out.dtype.text,
        "shape": out.shape.text,
        "layout": out.layout.text,
        "exact": out.layout.exact,
        "optional": out.when is not None,
    }


# -- files ------------------------------------------------------------------------------------------------------------


def path_of(version: Version, folder: Path = FOLDER) -> Path:
    return folder / f"opset-{version}.json"


@cache
def locked(version: Version, folder: Path = FOLDER) -> Lock:
    """The lock of a version, from its file.  Raises KeelError[opset-version] for one that there is not."""
    file = path_of(version, folder)
    if not file.is_file():
        known = ", ".join(sorted(p.stem.removeprefix("opset-") for p in folder.glob("opset-*.json")))
        raise KeelError(
            "opset-version",
            f"This Keel knows no opset {version}.",
            {"known": known or "none"},
            do="Install a newer torch-keel.",
        )
    return read(file)


def read(file: Path) -> Lock:
    """A lock from any file.  Raises KeelError[bad-file]."""
    try:
        fields = Item(parsed(text_of(file))).record(("opset", "digest", "members"))
        fields["opset"].like(_VERSION, "a version of the opset, as 1.0")
        for member in fields["members"].table(1 << 16).values():
            _check(member)
        results: Lock = {k: item.value for k, item in fields.items()}
        if results["digest"] != digest(results["members"]):
            fields["digest"].refuse("It is not that of its members.")
    except Malformed as e:
        raise bad_file(file, e, what="It is not the lock of an opset.") from e
    return results


_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}")


def _check(member: Item) -> None:
    """Raises Malformed for what is not what a lock says of a member."""
    texts = ("kind", "family", "profile", "doc", "digest")
    lists = ("overloads", "operands", "requires", "dtypes", "tags")
    either, tables = ("compute", "decomposition", "reason"), ("clauses", "budget")
    fields = member.record((*texts, *lists, *either, *tables, "results"))
    for name in (*texts, *(e for e in either if fields[e].value is not None)):
        fields[name].text()
    for name in lists:
        for item in fields[name].items(1 << 12):
            item.text()
    for sentence in fields["clauses"].table(1 << 12).values():
        sentence.text()
    for budget in fields["budget"].table(1 << 8).values():
        for number in budget.record((), ("ulps", "times")).values():
            number.number()
    if isinstance(fields["results"].value, list):
        for result in fields["results"].items(1 << 8):
            formula = result.record(("dtype", "shape", "layout", "exact", "optional"))
            for name, item in formula.items():
                item.flag() if name in ("exact", "optional") else item.text()
    elif fields["results"].value is not None:
        fields["results"].text()
    if fields["digest"].value != digest({k: v for k, v in member.value.items() if k != "digest"}):
        fields["digest"].refuse("It is not that of the member.")


@cache
def overloads(version: Version) -> frozenset[str]:
    """The full names of all overloads of a version."""
    if version == CURRENT:
        return frozenset(o for op in MEMBERS.values() for o in op.overloads)
    return frozenset(o for m in locked(version)["members"].values() for o in m["overloads"])


def released(folder: Path = FOLDER) -> Mapping[str, str]:
    """The sha256 of the lock file of each version that is released."""
    results: Mapping[str, str] = json.loads((folder / "released.json").read_text())
    return results


def changed_since_release(folder: Path = FOLDER) -> list[str]:
    """What is wrong with the released locks: a sentence each."""
    results = []
    for name, want in released(folder).items():
        file = folder / f"opset-{name}.json"
        if not file.is_file():
            results.append(f"Opset {name} is released, and {file.name} is gone.")
        elif sha256(file.read_bytes()).hexdigest() != want:
            results.append(f"Opset {name} is released, and {file.name} is not what was released.")
    return results


def write(folder: Path = FOLDER, *, release: bool = False, new: Lock | None = None) -> Path:
    """Writes the lock of the declarations at hand, and with ``release`` makes it one that never changes.

    Raises KeelError[bad-option] if that version is released and the declarations have changed since.
    """
    new = lock() if new is None else new
    name, content = new["opset"], text(new).encode()
    file, done = folder / f"opset-{name}.json", dict(released(folder))
    if name in done and sha256(content).hexdigest() != done[name]:
        raise KeelError(
            "bad-option",
            f"Opset {name} is released, and its lock never changes.",
            do="Give CURRENT in keel/spec/versions.py the next version; keel spec diff says which.",
        )
    file.write_bytes(content)
    if release:
        done[name] = sha256(content).hexdigest()
        (folder / "released.json").write_text(json.dumps(done, indent=1, sort_keys=True) + "\n")
    return file
