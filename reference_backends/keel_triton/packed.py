"""Additions of two 16-bit numbers at once, each by itself: ptxas drops what one of them adds.

Of ``add.s16x2 d, a, 0x00020000``, of which only the upper half is read, ptxas 12.8 and 12.9 make
``VIADD.16x2 d, a, 0x0`` for sm_90: it reads the lower half instead, and takes that of the number, too.  LLVM makes such
additions of places along axes so short that their quotients fit 8 bits, as adaptive pooling has them.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend

_PACKED = re.compile(r"\badd\.([su]16)x2\s+(%\w+),\s*(%\w+),\s*(%\w+);")
_SINGLE = (r"{ .reg .b16 a, b, c, d; mov.b32 {a, b}, \3; mov.b32 {c, d}, \4; "
           r"add.\1 a, a, c; add.\1 b, b, d; mov.b32 \2, {a, b}; }")


def unpacked(ptx: str) -> str:
    """The same PTX without such additions."""
    return _PACKED.sub(_SINGLE, ptx)


def assembled(kernel: Any, target: GPUTarget, options: Mapping[str, Any]) -> Any:
    """Triton's compiled ``kernel``, its machine code made again where it has such additions."""
    ptx = unpacked(kernel.asm["ptx"])
    if ptx != kernel.asm["ptx"]:
        backend = make_backend(target)
        cubin = backend.make_cubin(ptx, {}, backend.parse_options(dict(options)), target.arch)
        kernel.asm.update(ptx=ptx, cubin=cubin)
    return kernel
