"""Builds the device's C++ once for this source, this PyTorch and this compiler, and loads it.

A real vendor ships a compiled wheel instead. Building at the first import keeps the example one folder of sources.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import torch
from torch.utils.cpp_extension import load

HERE = Path(__file__).parent
SOURCES = ("device.cpp", "graph.cpp", "kernels.cpp", "autocast.cpp")
FLAGS = ("-O1", "-std=c++20", "-Wall", "-Wno-unused-function")
FOLDER = "KEEL_PRIVATEUSE1_BUILD"
"""The environment variable with the folder for builds. The default is in the user's cache."""


def build() -> ModuleType:
    """The extension module. Of several processes that need it, one builds it and the others wait."""
    folder = _root() / _key()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "lock").unlink(missing_ok=True)  # PyTorch's own lock, which a process that was killed leaves behind
        module = load(
            name="keel_privateuse1_C",
            sources=[str(HERE / name) for name in SOURCES],
            extra_cflags=list(FLAGS),
            build_directory=str(folder),
        )
    assert isinstance(module, ModuleType)
    return module


def _root() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache")
    return Path(os.environ.get(FOLDER, "") or cache / "keel_privateuse1")


def _key() -> str:
    """A hash of everything that the built module depends on."""
    compiler = subprocess.run([os.environ.get("CXX", "c++"), "--version"], capture_output=True, check=True).stdout
    texts = [(HERE / name).read_bytes() for name in ("device.h", "graph.h", *SOURCES)]
    about = [torch.__version__, sys.version, *FLAGS]
    return hashlib.sha256(b"\0".join([compiler, *map(str.encode, about), *texts])).hexdigest()[:16]
