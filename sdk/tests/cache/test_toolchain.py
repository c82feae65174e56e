"""Compilers as processes: stopped when they hang, with all that they started, and known by their content."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

from keel import KeelError
from keel.cache import compiler_fingerprint, files_fingerprint, run_compiler, toolchain
from keel.cache.toolchain import stopped_with_this


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    return tmp_path


def program(folder: Path, text: str, name: str = "acmecc") -> Path:
    """A program on PATH; one of that name that is there is exchanged, not written to."""
    made = folder / "made"
    made.write_text(f"#!/bin/sh\n{text}\n")
    made.chmod(0o755)
    return made.rename(folder / "bin" / name)


def alive(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def test_what_a_command_says(folder: Path) -> None:
    program(folder, 'cat; echo "$1 $WHERE" >&2; exit 3')
    ran = run_compiler(["acmecc", "-x"], "int ä;", environment={**os.environ, "WHERE": "here"})
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "int ä;", "-x here\n")


def test_what_reads_nothing_and_says_what_is_no_text(folder: Path) -> None:
    program(folder, r"printf '\377'; exec 0<&-")
    assert run_compiler(["acmecc"], "x" * 10**6).stdout == "\N{REPLACEMENT CHARACTER}"


def test_what_is_printed_without_end_is_kept_to_a_mebibyte(folder: Path) -> None:
    program(folder, "echo first; head -c 40000000 /dev/zero; echo last >&2")
    ran = run_compiler(["acmecc"], "x" * 10**6)
    assert ran.stdout.startswith("first\n") and len(ran.stdout) == toolchain.MAX_OUTPUT and ran.stderr == "last\n"


@pytest.mark.slow
def test_a_server_that_is_left_behind_is_not_waited_for(folder: Path) -> None:
    program(folder, f"cat; setsid sh -c 'echo $$ > {folder}/server; exec sleep 1000' &")
    began = time.monotonic()
    try:
        assert run_compiler(["acmecc"], "text").stdout == "text" and time.monotonic() - began < 60
    finally:
        os.kill(int((folder / "server").read_text()), signal.SIGKILL)


@pytest.mark.slow
def test_what_closes_its_streams_is_waited_for_and_stopped(folder: Path) -> None:
    program(folder, "exec <&- >&- 2>&-; sleep 0.5; exit 4")
    assert run_compiler(["acmecc"], "x" * 10**6).returncode == 4
    program(folder, "exec <&- >&- 2>&-; sleep 1000")
    with pytest.raises(KeelError, match=r"did not end within 0\.5 seconds"):
        run_compiler(["acmecc"], seconds=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("hangs", ["sleep 1000", "sleep 1000 & wait", "sleep 1000 & exit 0", "sleep 999 | sleep 99"])
def test_what_hangs_is_stopped_with_all_that_it_started(hangs: str, folder: Path) -> None:
    program(folder, f"echo $$ > {folder}/group; {hangs}")
    began = time.monotonic()
    with pytest.raises(KeelError, match=r"acmecc did not end within 0\.5 seconds and was stopped") as caught:
        run_compiler(["acmecc"], "text", seconds=0.5)
    assert caught.value.code == "build-failed" and caught.value.do and time.monotonic() - began < 30
    group = int((folder / "group").read_text())
    while any(alive(p) and group_of(p) == group for p in map(int, filter(str.isdigit, os.listdir("/proc")))):
        assert time.monotonic() - began < 30  # dying takes a moment
        time.sleep(0.01)


def group_of(process: int) -> int:
    try:
        return os.getpgid(process)
    except ProcessLookupError:
        return 0


def test_an_interrupt_stops_it_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(folder, f"echo $$ > {folder}/group; exec sleep 1000")

    def interrupted(*args: object, **options: object) -> None:
        while not (folder / "group").exists() or not (folder / "group").read_text().strip():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(toolchain, "_exchanged", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_compiler(["acmecc"])
    assert not alive(int((folder / "group").read_text()))


def test_an_interrupt_stops_those_of_other_threads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main thread is interrupted while two others wait for compilers, and a third has yet to start its own."""
    program(folder, f"echo $$ >> {folder}/groups; sleep 1000 & wait")
    waits, waited_for, exchanged = threading.Event(), threading.Semaphore(0), toolchain._exchanged

    def heard(*args: Any) -> tuple[str, str]:
        waited_for.release()
        return exchanged(*args)

    monkeypatch.setattr(toolchain, "_exchanged", heard)

    def late() -> None:
        waits.wait(60)
        run_compiler(["acmecc"])

    with ThreadPoolExecutor(3) as pool, pytest.raises(KeyboardInterrupt), stopped_with_this():
        began = [pool.submit(copy_context().run, run_compiler, ["acmecc"]) for _ in range(2)]
        began.append(pool.submit(copy_context().run, late))
        while not (folder / "groups").exists() or (folder / "groups").read_text().count("\n") < 2:
            time.sleep(0.01)
        assert all(waited_for.acquire(timeout=60) for _ in range(2))
        try:
            raise KeyboardInterrupt
        finally:
            threading.Timer(0.2, waits.set).start()
    assert [type(each.exception(60)) for each in began] == [type(None), type(None), KeyboardInterrupt]
    assert all(each.result().returncode < 0 for each in began[:2])
    assert run_compiler(["true"]).returncode == 0


def test_the_limit_is_a_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(folder, "sleep 1000")
    monkeypatch.setenv("KEEL_COMPILER_TIMEOUT", "0.25")
    with pytest.raises(KeelError, match=r"within 0\.25 seconds"):
        run_compiler(["acmecc"])
    for text in ("soon", "0", "-1", "inf", "nan"):
        monkeypatch.setenv("KEEL_COMPILER_TIMEOUT", text)
        with pytest.raises(KeelError, match="bad-option"):
            run_compiler(["acmecc"])


def test_what_cannot_be_started(folder: Path) -> None:
    for command in ("no-such-compiler", str(folder)):
        with pytest.raises(KeelError, match="could not be started"):
            run_compiler([command])
    with pytest.raises(KeelError, match="not on PATH"):
        compiler_fingerprint("no-such-compiler")


# -- content -------------------------------------------------------------------------------------------


def test_another_content_is_another_compiler(folder: Path) -> None:
    program(folder, "exit 1 # one")
    one = compiler_fingerprint("acmecc")
    assert compiler_fingerprint("acmecc") == one
    path = program(folder, "exit 1 # two")
    two = compiler_fingerprint("acmecc")
    written = path.stat()
    path.write_text(path.read_text().replace("two", "six"))
    os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))
    six = compiler_fingerprint("acmecc")
    assert len({one, two, six}) == 3
    program(folder, "exit 1 # one")
    assert compiler_fingerprint("acmecc") == one


def test_programs_that_a_driver_runs_count(folder: Path) -> None:
    inner = folder / "cc1"
    inner.write_text("one")
    inner.chmod(0o755)
    program(folder, f"case $1 in -print-prog-name=cc1) echo {inner};; -print-prog-name=*) echo nowhere;; esac")
    one = compiler_fingerprint("acmecc")
    inner.write_text("two")
    assert compiler_fingerprint("acmecc") != one


def test_files_count_each_and_in_their_order(folder: Path) -> None:
    one, two = folder / "one", folder / "two"
    one.write_text("1")
    two.write_text("2")
    listed = files_fingerprint([one, two])
    assert listed == files_fingerprint([str(one), str(two)])
    assert len({listed, files_fingerprint([two, one]), files_fingerprint([one]), files_fingerprint([])}) == 4
    two.write_text("3")
    assert files_fingerprint([one, two]) != listed
    with pytest.raises(FileNotFoundError):
        files_fingerprint([folder / "three"])


def test_a_driver_that_hangs_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(folder, "sleep 1000")
    monkeypatch.setenv("KEEL_COMPILER_TIMEOUT", "0.25")
    with pytest.raises(KeelError, match=r"acmecc did not end"):
        compiler_fingerprint("acmecc")


def test_contents_are_kept_on_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(folder, "exit 1 # kept")
    one = compiler_fingerprint("acmecc")
    toolchain._content.cache_clear()
    monkeypatch.setattr(toolchain.hashlib, "file_digest", None)
    assert compiler_fingerprint("acmecc") == one


@pytest.mark.parametrize("kept", [b"", b"x", b"0" * 63, b"0" * 65, b"\xff" * 64, b"G" * 64, b"0" * 63 + b"\n"])
def test_a_content_that_is_none_is_taken_anew(kept: bytes, folder: Path) -> None:
    program(folder, "exit 1 # kept")
    one = compiler_fingerprint("acmecc")
    files = [folder / "bin" / "acmecc"]
    cache, key = toolchain.Cache("compilers"), [str(part) for file in files for part in toolchain._identity(file)]
    for _ in range(2):  # the second time it is kept again
        toolchain._content.cache_clear()
        assert compiler_fingerprint("acmecc") == one
        cache.put(key, kept)
    toolchain._content.cache_clear()
    assert compiler_fingerprint("acmecc") == one and cache.get(key) != kept
