"""Compiled kernels as bytes, in Keel's cache: Triton's own does not verify what it reads."""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.cache import get_cache_key

from keel.cache import Cache
from keel_triton import ptx_fixes

CACHE = Cache("triton", ".json")
METADATA = ("name", "shared", "num_warps", "num_ctas", "global_scratch_size", "profile_scratch_size")


@dataclass(frozen=True, eq=False)
class Binary:
    """A compiled kernel: ``asm`` holds its machine code ("cubin") and the "ptx" that it was assembled from,
    ``metadata`` what a launch must know of it, METADATA.
    """

    asm: Mapping[str, Any]
    metadata: SimpleNamespace


class Source(ASTSource):  # type: ignore[misc]
    """A function for Triton's compiler with a place of its own in Triton's cache, which nothing can lie in before."""

    place = ""

    def hash(self) -> str:
        """What Triton names its files by."""
        return hashlib.sha256((super().hash() + self.place).encode()).hexdigest()


def binary(source: Source, target: GPUTarget, options: Mapping[str, Any]) -> Binary:
    """The compiled kernel, from the cache if it has been compiled by this compiler before.  Raises what Triton raises.

    With TRITON_ALWAYS_COMPILE=1 it is compiled in any case.
    """

    def make() -> bytes:
        return _packed(_compiled(source, target, options))

    key = _key(source, target, options)
    if triton.knobs.compilation.always_compile:
        CACHE.put(key, made := make())
        return _unpacked(made)
    return _unpacked(CACHE.get_or_make(key, make))


def _compiled(source: Source, target: GPUTarget, options: Mapping[str, Any]) -> Any:
    """Triton's compiled kernel.  Its files are removed, for nobody will look for them."""
    source.place = secrets.token_hex(16)
    made = triton.compile(source, target=target, options=dict(options))
    for folder in {Path(path).parent for path in made.metadata_group.values()}:
        shutil.rmtree(folder, ignore_errors=True)
    return ptx_fixes.assembled(made, target, options)


def _key(source: Source, target: GPUTarget, options: Mapping[str, Any]) -> list[str]:
    """The function, the target, the options, the content of Triton and of ptxas, and of what changes their PTX."""
    backend = make_backend(target)
    variables = triton.compiler.compiler.get_cache_invalidating_env_vars()
    return [get_cache_key(source, backend, backend.parse_options(dict(options)), variables), repr(target), _assembly()]


@lru_cache(maxsize=1)
def _assembly() -> str:
    return inspect.getsource(ptx_fixes)


def _packed(kernel: Any) -> bytes:
    metadata = {name: getattr(kernel.metadata, name) for name in METADATA}
    code = base64.b64encode(kernel.asm["cubin"]).decode()
    return json.dumps({"metadata": metadata, "ptx": kernel.asm["ptx"], "cubin": code}).encode()


def _unpacked(data: bytes) -> Binary:
    held = json.loads(data)
    return Binary({"ptx": held["ptx"], "cubin": base64.b64decode(held["cubin"])}, SimpleNamespace(**held["metadata"]))
