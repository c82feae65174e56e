"""What reads files that others may hand over, besides the public functions: for tools that try all readers.

A command reads such a file, or PyTorch has saved it. Each function here returns what was read, and prints nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keel.artifact.saved_graph import restored, restoring_with
from keel.documents import Malformed, bad_file, text_of
from keel.loops import Kernel
from keel.opt import for_target, read_kernel, source
from keel.package_commands import as_data, as_rows, inspected
from keel.plugin import Backend
from keel.repro_folder import Repro, load_repro
from keel.settings import read_settings
from keel.spec import diff, lock
from keel.spec.versions import CURRENT
from keel.torch_adapter import Boxed

__all__ = ["Repro", "changes_of_lock", "inspection", "kernel_in", "load_repro", "restored_graph", "sources_of"]


def inspection(path: Path) -> str:
    """What ``keel inspect --check`` says of a package, as data and as text. Raises KeelError[bad-file]."""
    manifest = inspected(path, check=True)
    return "\n".join([json.dumps(as_data(manifest)), *map(" ".join, as_rows(manifest))])


def changes_of_lock(path: Path) -> str:
    """What ``keel spec diff`` says of a lock and the current operator set. Raises KeelError[bad-file]."""
    old = lock.read(path)
    changes = diff.diff(old, lock.locked(CURRENT))
    return "\n".join([*(change.sentence for change in changes), str(diff.next_version(old, changes))])


def kernel_in(path: Path) -> Kernel:
    """The kernel in a file, as ``keel opt`` reads it. Raises KeelError[bad-file], KeelError[bad-text] or
    KeelError[bad-graph].
    """
    try:
        return read_kernel(text_of(path))
    except Malformed as e:
        raise bad_file(path, e, what="It is not the text of a kernel.") from e


def sources_of(kernel: Kernel, backends: Sequence[Backend]) -> list[str]:
    """The kernel in the scalar ops of each of these backends, and its source, as ``keel opt`` prints both."""
    return [text for each in backends for text in (str(for_target(kernel, each)), source(kernel, each))]


def restored_graph(state: Mapping[str, Any], backends: Sequence[Backend]) -> Boxed:
    """The compiled graph that PyTorch saved as ``state``, with these backends in place of the installed ones. Raises
    KeelError[bad-artifact], and what a backend raises.
    """
    with restoring_with(read_settings(None, {"backends": backends})):
        return restored(state)
