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
    """The CPU's name and abilities, as the kernel of the system lists them."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    lines = re.findall(r"^(?:model name|flags|CPU part|Features)\s*:\s*(.*)$", text.partition("\n\n")[0], re.MULTILINE)
    return "\n".join([platform.machine(), *lines])
