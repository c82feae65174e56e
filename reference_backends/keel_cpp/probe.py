"""Whether this machine can compile and run the kernels: a compiler to call, and what its CPU can do."""

from __future__ import annotations

import platform
import re
import shutil
from functools import lru_cache
from pathlib import Path

COMPILER = "g++"


def probe() -> str | None:
    """None, or the sentence that says why kernels cannot be built here."""
    if platform.system() != "Linux":
        return f"cpp builds shared objects for Linux, and this is {platform.system()}."
    return None if shutil.which(COMPILER) else f"cpp compiles with {COMPILER}, which is not on PATH."


@lru_cache(maxsize=1)
def cpu() -> str:
    """The CPU's name and features, as the kernel of the system lists them."""
    return "\n".join([platform.machine(), *_listed("model name|flags|CPU part|Features")])


@lru_cache(maxsize=1)
def cpu_features() -> frozenset[str]:
    """The CPU's features, by the names of /proc/cpuinfo."""
    return frozenset(" ".join(_listed("flags|Features")).split())


def _listed(fields: str) -> list[str]:
    info = Path("/proc/cpuinfo")
    first = info.read_text().partition("\n\n")[0] if info.exists() else ""
    return re.findall(rf"^(?:{fields})\s*:\s*(.*)$", first, re.MULTILINE)
