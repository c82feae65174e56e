"""Libraries: compiled once, loaded from verified bytes, with an error or another place where that cannot be."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from keel import KeelError, KeelWarning
from keel.cache import compile_library, library, library_bytes, load_library

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
COMMAND = ("cc", "-shared", "-fPIC", "-xc", "-")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The commands that compile; libraries of tests before are forgotten."""
    forget(monkeypatch)
    seen: list[Sequence[str]] = []
    run = library.run_compiler

    def counted(command: Sequence[str], *args: Any, **options: Any) -> Any:
        seen.append(command)
        return run(command, *args, **options)

    monkeypatch.setattr(library, "run_compiler", counted)
    return seen


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(library, "_BUILT", {})
    monkeypatch.setattr(library, "_LOADED", {})


def gives(number: int, **options: Any) -> int:
    return int(compile_library("acme", COMMAND, f"int number(void) {{ return {number}; }}", **options).number())


def libraries(folder: Path) -> list[Path]:
    return sorted(folder.glob("acme-*.so"))


def test_a_library_is_compiled_once(folder: Path, runs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert gives(1) == gives(1) == 1 and len(runs) == 1
    forget(monkeypatch)
    assert gives(1) == 1 and len(runs) == 1
    assert gives(2) == 2 and gives(1, key=["another CPU"]) == 1 and len(runs) == 3
    assert len(libraries(folder)) == 3
    assert not list(folder.glob("keel-draft-*"))


def test_the_file_of_a_library_is_not_loaded(folder: Path, runs: list[Any]) -> None:
    text = "int number(void) { return 5; }"
    data = library_bytes("acme", COMMAND, text)
    assert not library._LOADED and len(runs) == 1 and load_library(data).number() == 5
    assert library_bytes("acme", COMMAND, text) == data and gives(5) == 5 and len(runs) == 1
    with pytest.raises(KeelError, match="build-failed"):
        library_bytes("acme", COMMAND, "no C")


def test_a_file_that_is_cut_off_is_not_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        compiled = library._compiled
        patch.setattr(library, "_compiled", lambda *args: compiled(*args)[:9000])
        with pytest.raises(KeelError, match=r"build-failed.*truncated after 9000 bytes"):
            library_bytes("acme", COMMAND, "int number(void) { return 6; }")
    assert not libraries(folder) and gives(6) == 6


NO_LIBRARY = {
    "cut off": ('cc "$@" && truncate -s 9000 "$out"', "is truncated after 9000 bytes"),
    "cut off in its head": ('cc "$@" && truncate -s 40 "$out"', "is truncated after 40 bytes"),
    "empty": ('cat > /dev/null; : > "$out"', "cannot load"),
    "text": ('cat > "$out"', "cannot load"),
    "none": ("cat > /dev/null", "It made no file"),
    "a folder": ('cat > /dev/null; mkdir "$out"', "something other than a file"),
    "a pipe": ('cat > /dev/null; mkfifo "$out"', "something other than a file"),
    "too large": ('cat > /dev/null; truncate -s 40G "$out"', "a file of 42949672960 bytes"),
}


@pytest.mark.parametrize("case", NO_LIBRARY)
def test_what_is_no_library_is_an_error_and_not_kept(
    case: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, said = NO_LIBRARY[case]
    compiler = tmp_path / "bin" / "acmecc"
    compiler.parent.mkdir()
    compiler.write_text(f'#!/bin/sh\ncase "$1" in -print*) exit 1;; esac\nfor out; do :; done\n{text}\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{compiler.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(library, "compiler_fingerprint", lambda program: "as ever")
    command, source = ("acmecc", *COMMAND[1:]), "int number(void) { return 7; }"
    with pytest.raises(KeelError, match=said) as caught:
        compile_library("acme", command, source)
    assert caught.value.code == "build-failed" and not libraries(folder)
    compiler.write_text('#!/bin/sh\nexec cc "$@"\n')
    assert compile_library("acme", command, source).number() == 7 and len(libraries(folder)) == 1


def test_another_compiler_of_the_same_version_compiles_again(
    folder: Path, runs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gives(1) == 1
    monkeypatch.setattr(library, "compiler_fingerprint", lambda program: "another")
    assert gives(1) == 1 and len(runs) == 2


def test_what_is_damaged_is_compiled_again(folder: Path, runs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert gives(7777) == 7777
    (path,) = libraries(folder)
    held = path.read_bytes()
    path.write_bytes(held.replace((7777).to_bytes(4, "little"), (7778).to_bytes(4, "little")))
    assert path.read_bytes() != held
    forget(monkeypatch)
    assert gives(7777) == 7777 and len(runs) == 2 and path.read_bytes()[:4] == b"\x7fELF"
    forget(monkeypatch)
    assert gives(7777) == 7777 and len(runs) == 2


def bytes_of(number: int, folder: Path) -> bytes:
    """The file of a library, as the cache gives it."""
    seen: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library.Cache, "put", lambda cache, key, data: seen.append(data))
        gives(number)
    return seen[0]


def test_what_is_loaded_cannot_be_changed(folder: Path) -> None:
    """The file may be cut or exchanged while its library runs."""
    assert gives(5) == 5
    loaded = compile_library("acme", COMMAND, "int number(void) { return 5; }")
    for path in libraries(folder):
        path.write_bytes(b"")
    assert loaded.number() == 5
    if hasattr(os, "memfd_create"):
        assert str(folder) not in Path("/proc/self/maps").read_text()


@pytest.mark.slow
def test_many_libraries_keep_apart() -> None:
    """Descriptors, and so paths of libraries in memory, come again; libraries must not."""
    assert [gives(n) for n in range(12)] == list(range(12))


def test_equal_bytes_are_loaded_once(folder: Path) -> None:
    data = bytes_of(3, folder)
    assert load_library(data) is load_library(bytes(bytearray(data)))


@pytest.mark.parametrize("missing", [True, False])
def test_where_there_is_no_sealed_memory(missing: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    else:

        def refused(*args: object) -> int:
            raise PermissionError(errno.EACCES, "memfd_noexec")

        monkeypatch.setattr(os, "memfd_create", refused, raising=False)
    assert [gives(n) for n in (11, 12)] == [11, 12]
    assert len(libraries(folder)) == 2 and not list(folder.glob("keel-draft-*"))


def test_a_cache_on_a_disk_without_execution(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    load = ctypes.CDLL

    def refused(path: str) -> ctypes.CDLL:
        if path.startswith(str(folder)):
            raise OSError("failed to map segment from shared object")
        return load(path)

    monkeypatch.setattr(ctypes, "CDLL", refused)
    assert gives(13) == 13


def test_what_no_loader_takes() -> None:
    with pytest.raises(KeelError, match="cannot load a library of acme"):
        load_library(b"\x7fELF and no more", "acme")


def test_what_the_compiler_rejects(folder: Path) -> None:
    with pytest.raises(KeelError) as caught:
        compile_library("acme", COMMAND, "int nothing = ;", what="k0")
    assert caught.value.code == "build-failed" and "cc rejected the text of k0" in str(caught.value)
    assert "error" in str(caught.value) and not libraries(folder)


def test_a_compiler_that_makes_nothing() -> None:
    with pytest.raises(KeelError, match="It made no file"):
        compile_library("acme", ["true"], "text")


def test_disks_that_are_full_are_not_the_texts_fault(tmp_path: Path) -> None:
    """In a process of its own, for a limit on the size of files is one of the whole process."""
    script = tmp_path / "limited.py"
    script.write_text(f"""
import resource, sys, warnings
from keel.cache import compile_library
from keel.errors import KeelError
warnings.simplefilter("ignore")
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
try:
    compile_library("acme", {list(COMMAND)!r}, "int number(void) {{ return 5; }}")
except KeelError as error:
    text = str(error)
    right = "There is no folder in which to compile" in text and "File too large" in text
    sys.exit(0 if right else text)
sys.exit("It was compiled.")
""")
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr


def test_a_full_disk_is_left_for_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gives(0)
    compiled, places = library._attempt, []

    def attempt(place: Path, *args: Any) -> bytes | str:
        places.append(place)
        return "No space left" if place.is_relative_to(folder) else compiled(place, *args)

    monkeypatch.setattr(library, "_attempt", attempt)
    monkeypatch.setattr(library, "lacks_room", lambda place: OSError(errno.ENOSPC, "No space left on device"))
    with pytest.warns(KeelWarning, match="No space left on device"):
        assert gives(21) == 21
    assert len(places) == 2 and not places[1].is_relative_to(folder)


def test_no_place_to_compile_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(full: OSError | None = None) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(library, "workspace", nowhere)
    with pytest.raises(KeelError, match="no folder in which to compile"):
        gives(22)
