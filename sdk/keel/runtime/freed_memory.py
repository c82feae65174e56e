"""What the C library does with freed memory: keep it for a part's next call, or give it back to the system.

PyTorch allocates the results of its CPU kernels with the C library. glibc maps memory for each large result, and gives
the memory back once it is freed. At the next call the system maps it again and fills it with zeros, page by page.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

KEPT_BYTES = 2**28
"""The most bytes of freed memory at the end of the heap that the process keeps."""
MAPPED_BYTES = 2**25
"""Results of more bytes are mapped one by one unless the heap has room: the most that glibc allows, to which it also
comes by itself.
"""
ROOM_BYTES = 2**27
"""The bytes by which the heap grows, so that it has room for large results. Unused ones take no memory."""
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Has the process keep up to ``KEPT_BYTES`` freed bytes.

    Returns False if the user has settings of their own for glibc, or the C library is another one.
    """
    set_option = _function("mallopt")
    if set_option is None or any(name in os.environ for name in _SETTINGS):
        return False
    options = {_MMAP_THRESHOLD: MAPPED_BYTES, _TRIM_THRESHOLD: KEPT_BYTES, _TOP_PAD: ROOM_BYTES}
    return all(set_option(option, value) for option, value in options.items())


def give_back_freed_memory() -> None:
    """Gives freed memory back to the system. Compilation leaves tens of megabytes that a model does not need."""
    if (trim := _function("malloc_trim")) is not None:
        trim(0)


@cache
def _function(name: str) -> Any:
    """A function of glibc; None if the C library is another one."""
    try:
        library = ctypes.CDLL(None)
        return getattr(library, name) if hasattr(library, "gnu_get_libc_version") else None
    except (OSError, TypeError, AttributeError):
        return None
