"""Freed memory is kept for a part's next call, unless the user has settings of their own."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="The C library is not glibc.")
PROGRAM = """
import resource, torch
from keel.runtime.freed_memory import give_back_freed_memory, keep_freed_memory

def faults():
    sizes = [2**24] * 3
    for _ in range(8):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        kept = [torch.ones(n, dtype=torch.uint8) for n in sizes]
        del kept
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

kept = keep_freed_memory()
count = faults()
give_back_freed_memory()
print(kept, count < 1000, faults() < 1000)
"""


def said(**environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"PYTHONPATH": ":".join(sys.path), **environment}, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split()


@GLIBC
def test_memory_is_mapped_once() -> None:
    assert said() == ["True", "True", "True"]


@GLIBC
@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_"])
def test_the_settings_of_the_user_stay(name: str) -> None:
    assert said(**{name: "1048576"})[0] == "False"
