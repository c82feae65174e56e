"""Keeps compiled code as files, for kernels of any backend; safe against damage, other users and crashes.

``Cache`` keeps bytes by key, ``compile_library`` runs a compiler and keeps the shared library that it makes.
``library_bytes`` returns the file of such a library for another machine.
"""

from keel.cache.library import compile_library, library_bytes, load_library
from keel.cache.store import Cache
from keel.cache.toolchain import compiler_fingerprint, files_fingerprint, package_fingerprint, run_compiler

__all__ = [
    "Cache",
    "compile_library",
    "compiler_fingerprint",
    "files_fingerprint",
    "library_bytes",
    "load_library",
    "package_fingerprint",
    "run_compiler",
]
