"""The C++ runtime, as source: it runs packages without Python."""

from __future__ import annotations

from pathlib import Path


def runtime_sources() -> Path:
    """The folder with the sources of the C++ runtime. ``keel_runtime.h`` is its C interface.

    ``g++ -std=c++17 -O2 *.cpp your_program.cpp -ldl -lpthread`` builds it, and so does its ``CMakeLists.txt``, as the
    library ``keel_runtime``.
    """
    return Path(__file__).parent
