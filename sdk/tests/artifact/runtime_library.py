"""The C++ runtime, built once per machine, and called through its C interface."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

import keel

SOURCES = keel.runtime_sources()
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def built(name: str, files: Sequence[Path], *flags: str) -> Path:
    """What g++ makes of some files, in a folder of this machine that later test runs use too."""
    key = hashlib.sha256(repr(flags).encode())
    for path in sorted({*files, *SOURCES.glob("*.h"), *SOURCES.glob("*.cpp")}):
        key.update(path.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"keel-runtime-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    made = folder / f"{name}-{key.hexdigest()[:16]}"
    if not made.exists():
        draft = made.with_name(f"{made.name}.{os.getpid()}")
        command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", *flags, f"-I{SOURCES}", "-o", str(draft)]
        subprocess.run([*command, *map(str, files), "-ldl", "-lpthread"], check=True)
        draft.replace(made)
    return made


@cache
def runtime() -> ctypes.CDLL:
    """The runtime as a shared library."""
    library = ctypes.CDLL(str(built("runtime", sorted(SOURCES.glob("*.cpp")), "-O1", "-fPIC", "-shared")))
    for name in ("keel_input_count", "keel_output_count", "keel_weight_count", "keel_held_bytes"):
        getattr(library, name).restype = ctypes.c_size_t
    library.keel_variant.restype = ctypes.c_char_p
    return library


class Error(ctypes.Structure):
    _fields_ = (("status", ctypes.c_int), ("text", ctypes.c_char * 2048))


class Options(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("libtorch", ctypes.c_char_p),
        ("variant", ctypes.c_char_p),
        ("cpu_features", ctypes.POINTER(ctypes.c_char_p)),
        ("cpu_feature_count", ctypes.c_size_t),
        ("check_weights", ctypes.c_int),
        ("threads", ctypes.c_int),
        ("part_libraries", ctypes.c_void_p),
        ("part_library_count", ctypes.c_size_t),
        ("part_files", ctypes.POINTER(ctypes.c_char_p)),
        ("part_file_count", ctypes.c_size_t),
    )


class Refused(Exception):
    """A status other than KEEL_OK, and the text of the error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def words(*texts: str) -> Any:
    """Texts as an array of C strings."""
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


_NAME = b"dltensor"


def _address(tensor: torch.Tensor) -> tuple[int, Any]:
    """The DLManagedTensor of a tensor, and what owns it."""
    capsule = torch.utils.dlpack.to_dlpack(tensor.detach())
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return get(capsule, _NAME), capsule


def _tensor(address: int) -> torch.Tensor:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    made: torch.Tensor = torch.utils.dlpack.from_dlpack(new(address, _NAME, None))
    return made


class Model:
    """A package in the C++ runtime. It is called with tensors and numbers, and returns a list of tensors."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.library, self.handle, error = runtime(), ctypes.c_void_p(), Error()
        passed = Options()
        self.library.keel_options_init(ctypes.byref(passed), ctypes.c_size_t(ctypes.sizeof(passed)))
        for name, value in options.items():
            setattr(passed, name, value)
        where = str(path).encode()
        if self.library.keel_load(where, ctypes.byref(passed), ctypes.byref(self.handle), ctypes.byref(error)):
            raise Refused(error.status, error.text.decode())

    def __call__(self, *values: Any) -> list[Any]:
        tensors = [torch.tensor(v, dtype=_dtype(v)) if not isinstance(v, torch.Tensor) else v for v in values]
        passed = [_address(tensor) for tensor in tensors]
        inputs = (ctypes.c_void_p * len(passed))(*(address for address, _ in passed))
        count = self.library.keel_output_count(self.handle)
        outputs, error = (ctypes.c_void_p * count)(), Error()
        sizes = (ctypes.c_size_t(len(passed)), ctypes.c_size_t(count))
        if self.library.keel_run(self.handle, inputs, sizes[0], outputs, sizes[1], ctypes.byref(error)):
            raise Refused(error.status, error.text.decode())
        return [None if address is None else _tensor(address) for address in outputs]

    def replace(self, name: str, value: torch.Tensor) -> None:
        error, (address, _owner) = Error(), _address(value)
        pointer = ctypes.c_void_p(address)
        if self.library.keel_replace_weight(self.handle, name.encode(), pointer, ctypes.byref(error)):
            raise Refused(error.status, error.text.decode())

    @property
    def variant(self) -> str:
        name: bytes = self.library.keel_variant(self.handle)
        return name.decode()

    def __del__(self) -> None:
        if self.handle:
            self.library.keel_free(self.handle)


def _dtype(value: Any) -> torch.dtype:
    return {int: torch.int64, float: torch.float64, bool: torch.bool}[type(value)]


def same(got: Any, want: Any) -> bool:
    """True if a result is the same number, or has the same type, strides and bits."""
    if not isinstance(got, torch.Tensor) or not isinstance(want, torch.Tensor):
        return (got is None and want is None) or (isinstance(got, torch.Tensor) and bool(got.item() == want))
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return False
    steps = zip(got.shape, got.stride(), want.stride(), strict=True)
    if got.numel() and any(n > 1 and a != b for n, a, b in steps):
        return False
    return torch.equal(_bits(got), _bits(want))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
