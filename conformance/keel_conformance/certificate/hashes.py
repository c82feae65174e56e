"""Hashes of what a verdict depends on: specification, suite, compiler, plugin, PyTorch, and files of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from keel import KeelError, documents
from keel.testing import claims_of

from ..harness.backend_under_test import GROUP

MOST_BYTES = 1 << 30
LEFT_OUT = ("__pycache__", ".pyc", ".pyo")


def of_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def of_file(path: Path) -> str:
    """Raises KeelError[bad-option] if the path does not exist, and KeelError[bad-file] if it is not a file or is too
    large.
    """
    try:
        return of_bytes(documents.bytes_of(path, MOST_BYTES))
    except documents.Malformed as e:
        raise documents.bad_file(path, e, what="Its hash is wanted.") from e


def of_data(value: Any) -> str:
    """Returns the hash of the canonical JSON of a value."""
    return of_bytes(json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())


def of_files(top: Path, files: Iterable[Path]) -> str:
    """Returns one hash of the files and their names below ``top``. Adding, renaming or removing a file changes it."""
    result = sorted((p.relative_to(top).as_posix(), of_file(p)) for p in files)
    return of_data(result)


def of_package(name: str) -> str:
    """Returns the hash of all files of an installed package, or of the one file of a module.

    Raises KeelError[bad-option] if the package is not installed.
    """
    top, files = package_files(name)
    return of_files(top, files)


def package_files(name: str) -> tuple[Path, list[Path]]:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or (spec.origin is None and not spec.submodule_search_locations):
        raise KeelError("bad-option", f"There is no package {name!r} to take the hash of.")
    if not spec.submodule_search_locations:
        file = Path(str(spec.origin))
        return file.parent, [file]
    top = Path(next(iter(spec.submodule_search_locations)))
    return top, [p for p in top.rglob("*") if p.is_file() and not any(x in p.as_posix() for x in LEFT_OUT)]


def specification() -> dict[str, str]:
    """The lock of the operator set, and the contract's clauses."""
    from ..programs.contract import CLAUSES

    folder, files = package_files("keel.spec")
    locks = [p for p in files if p.name.startswith("opset-") and p.suffix == ".json"]
    return {"lock": of_files(folder, locks), "contract": of_data(dict(CLAUSES))}


def pytorch() -> dict[str, str]:
    record = distribution("torch").read_text("RECORD") or ""
    return {"version": torch.__version__, "commit": str(torch.version.git_version), "files": of_bytes(record.encode())}


def plugin(subject: str) -> dict[str, str]:
    """Describes the package of the backend that ``subject`` names: its distribution, its version and its files' hash.

    PyTorch is the package of a ``torch.compile`` backend that no other package registers.
    """
    points = [p for group in (GROUP, "torch_dynamo_backends") for p in claims_of(group).get(subject, ())]
    if ":" in subject:
        module = subject.partition(":")[0].partition(".")[0]
        names = _distributions_of(module)
    elif points:
        module = points[0].module.partition(".")[0]
        names = [points[0].package]
    else:
        return {"package": "torch", "distribution": "torch", "version": torch.__version__, "files": pytorch()["files"]}
    name = names[0] if names else ""
    return {
        "package": module,
        "distribution": name,
        "version": distribution(name).version if name else "",
        "files": of_package(module),
    }


def _distributions_of(module: str) -> list[str]:
    """The names of the distributions that brought a module, but for those whose metadata is damaged."""
    results = []
    for dist in distributions():
        with suppress(Exception):
            code = [file for file in dist.files or () if file.suffix == ".py"]
            if module in (
                (dist.read_text("top_level.txt") or "").split()
                or {file.parts[0] if len(file.parts) > 1 else file.stem for file in code}
            ):
                results.append(str(dist.name))
    return results
