"""Compiled kernels as bytes, in Keel's cache: Triton's own does not verify what it reads."""

from __future__ import annotations

import base64
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import triton
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from keel.cache import Cache, files_fingerprint
from keel_triton import ptx_fixes

CACHE = Cache("triton", ".json")
Store = Callable[[Sequence[str], bytes], Any]
"""Stores an entry of the cache, as ``Cache.put`` does."""
_LOCKS: dict[int, Lock] = {}
"""By process: in one that is forked, a thread of its parent may hold the parent's forever."""
METADATA = ("name", "shared", "num_warps", "num_ctas", "global_scratch_size", "profile_scratch_size")


@dataclass(frozen=True, eq=False)
class Binary:
    """A compiled kernel: ``asm`` holds its machine code ("cubin") and the "ptx" that it was assembled from,
    ``metadata`` what a launch must know of it, METADATA.
    """

    asm: Mapping[str, Any]
    metadata: SimpleNamespace


def binary(source: ASTSource, target: GPUTarget, options: Mapping[str, Any], store: Store = CACHE.put) -> Binary:
    """The compiled kernel, from the cache if it has been compiled by this compiler before; else ``store`` puts it
    there.  Raises what Triton raises.

    With TRITON_ALWAYS_COMPILE=1 it is compiled in any case.
    """
    key = _key(source, target, options)
    data = None if triton.knobs.compilation.always_compile else CACHE.get(key)
    if data is None:
        data = _packed(_compiled(source, target, options))
        store(key, data)
    return _unpacked(data)


def _compiled(source: ASTSource, target: GPUTarget, options: Mapping[str, Any]) -> Binary:
    """Runs the stages of Triton's compiler. ``triton.compile`` runs the same, but reads all of Triton first, and writes
    what each stage makes to a cache of its own, for longer than it compiles.
    """
    backend = make_backend(target)
    parsed = backend.parse_options(dict(options))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    stages: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
    backend.add_stages(stages, parsed, source.language)
    with _parsing():
        module = source.make_ir(
            target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context
        )
    metadata: dict[str, Any] = {"target": target, **vars(parsed)}
    made: dict[str, Any] = {}
    for stage, run in stages.items():
        module = run(module, metadata)
        if stage == "ptx":
            module = ptx_fixes.fixed(module)
        made[stage] = module
    return Binary(
        {"ptx": made["ptx"], "cubin": made["cubin"]}, SimpleNamespace(**{name: metadata[name] for name in METADATA})
    )


def _key(source: ASTSource, target: GPUTarget, options: Mapping[str, Any]) -> list[str]:
    """The function, the target, the options, the content of Triton and of ptxas, and of what changes their PTX."""
    backend = make_backend(target)
    variables = sorted(triton.compiler.compiler.get_cache_invalidating_env_vars().items())
    parsed = backend.parse_options(dict(options))
    compiler = compiler_fingerprint().result(), _assembly(), backend.hash()
    with _parsing():
        content = source.hash()
    return [content, parsed.hash(), repr(variables), repr(target), *compiler]


def _parsing() -> Lock:
    """Held while Triton parses Python. Before 3.11.8 and 3.12.2 Python raises SystemError at times if two threads parse
    (python/cpython#106905), and Triton's hash of a function is another one after an error.
    """
    return _LOCKS.setdefault(os.getpid(), Lock())


def compiler_fingerprint() -> Future[str]:
    """The hash of the files that decide what Triton makes: its modules and library, libdevice, and ptxas.

    These are hundreds of megabytes, so they are read by one thread, and once for all processes. Triton's own hash is
    computed in each process, and by each thread that needs it before another one has it.
    """
    return _reading(os.getpid())


@lru_cache(maxsize=1)
def _reading(process: int) -> Future[str]:
    """For one process: one that is forked has none of its parent's threads."""
    reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="keel-triton-reader")
    reading = reader.submit(_compiler_content)
    reader.shutdown(wait=False)
    return reading


def _compiler_content() -> str:
    files = Path(triton.__file__).parent.rglob("*")
    listed = (p for p in files if p.suffix in (".py", ".bc") or p.name.startswith(("libtriton.", "ptxas")))
    return files_fingerprint(sorted(listed))


@lru_cache(maxsize=1)
def _assembly() -> str:
    return inspect.getsource(ptx_fixes)


def _packed(kernel: Binary) -> bytes:
    code = base64.b64encode(kernel.asm["cubin"]).decode()
    return json.dumps({"metadata": vars(kernel.metadata), "ptx": kernel.asm["ptx"], "cubin": code}).encode()


def _unpacked(data: bytes) -> Binary:
    held = json.loads(data)
    return Binary({"ptx": held["ptx"], "cubin": base64.b64decode(held["cubin"])}, SimpleNamespace(**held["metadata"]))
