"""What the C++ runtime reads of a package before it loads machine code, in this process."""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import keel
from keel import KeelError

FLAGS = (
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-shared",
    "-D_GLIBCXX_ASSERTIONS",
    "-fsanitize=undefined",
    "-fno-sanitize-recover=all",
)
"""Undefined behavior ends the process, and so does an index out of range."""
_SIZE = 4096


def read_program(path: Path) -> None:
    """Raises KeelError[bad-file] if the runtime refuses the package, and RuntimeError for an error of another kind."""
    function, text = _function()
    status = function(str(path).encode(), text, _SIZE)
    if status == 1:
        raise KeelError("bad-file", text.value.decode(errors="replace"))
    if status:
        raise RuntimeError(text.value.decode(errors="replace"))


@cache
def _function() -> tuple[Any, Any]:
    """The function of the library, and memory for its sentence."""
    with TemporaryDirectory(prefix="keel-fuzz-") as folder:
        made = Path(folder, "read_program.so")
        made.write_bytes(keel.cache.Cache("bench").get_or_make(_key(), lambda: _library(made)))
        return ctypes.CDLL(str(made)).keel_read_program, ctypes.create_string_buffer(_SIZE)


def _sources() -> list[Path]:
    return [Path(__file__).with_name("read_program.cpp"), *sorted(keel.runtime_sources().glob("*.cpp"))]


def _key() -> list[str]:
    texts = [each.read_text() for each in (*_sources(), *sorted(keel.runtime_sources().glob("*.h")))]
    return [*texts, *FLAGS, keel.cache.compiler_fingerprint("g++")]


def _library(made: Path) -> bytes:
    command = ["g++", *FLAGS, f"-I{keel.runtime_sources()}", "-o", str(made), *map(str, _sources())]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True, capture_output=True, text=True)
    return made.read_bytes()
