"""Backends by name with data sheets of this machine, measured once in each run of the bench."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from keel import Backend, Cost
from keel.testing import find
from keel_foreign import foreign

from ..calibrate import calibrate

SHEETS = "KEEL_BENCH_SHEETS"
"""The environment variable that names the file of what was measured."""
FOREIGN = {"openvino": "openvino.torch"}
"""Backends of torch.compile that no entry point names, and the module that registers each."""


def backends(names: Sequence[str], device: str) -> list[Backend]:
    """Those backends, each with its measured sheet."""
    results = [_is_installed(name) for name in names]
    path = Path(os.environ[SHEETS])
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = json.loads(path.read_text()) if path.exists() else {}
        if lacking := [b for b in results if b.name not in known]:
            known |= {name: sheet.as_json() for name, sheet in calibrate(lacking, device).items()}
            path.write_text(json.dumps(known))
    return [replace(b, cost=Cost.from_json(json.dumps(known[b.name]))) for b in results]


def absent(names: Sequence[str]) -> str:
    """What has to be installed first; '' if nothing."""
    lacking = [name for name in names if name in FOREIGN and find_spec(name) is None]
    return f"{' and '.join(lacking)} is not installed: pip install {' '.join(lacking)}." if lacking else ""


def _is_installed(name: str) -> Backend:
    if name not in FOREIGN:
        return find(name)
    import_module(FOREIGN[name])
    return foreign(name)
