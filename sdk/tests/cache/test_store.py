"""Entries of the cache: what is damaged is missing, what is written is whole, what is too much goes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from keel import KeelError
from keel.cache import Cache
from keel.cache.folder import draft_name
from keel.cache.store import STALE, digest, sealed, size_limit, unsealed

KEY, DATA = ("text", "flags"), bytes(range(256)) * 8


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setenv("KEEL_CACHE_DIR", str(path))
    monkeypatch.delenv("KEEL_CACHE_SIZE", raising=False)
    return path


@pytest.fixture
def cache() -> Cache:
    return Cache("kernels", ".so")


def entry(folder: Path, cache: Cache, key: tuple[str, ...] = KEY) -> Path:
    return folder / cache.name(key)


def test_bytes_are_kept_by_key(cache: Cache, folder: Path) -> None:
    assert cache.get(KEY) is None
    cache.put(KEY, DATA)
    assert cache.get(KEY) == DATA and cache.get(("text", "other")) is None
    cache.put(KEY, b"")
    assert cache.get(KEY) == b""
    assert [p.name for p in folder.iterdir()] == [cache.name(KEY)]
    assert folder.stat().st_mode & 0o777 == 0o700 and entry(folder, cache).stat().st_mode & 0o777 == 0o600


def test_keys_that_read_alike_are_apart() -> None:
    keys = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), (), ("",), ("\0",), ("2:ab",), ("ä",), ("\udcff",)]
    assert len({digest(k) for k in keys}) == len(keys)


def test_what_is_missing_is_made_once(cache: Cache) -> None:
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        return DATA

    assert cache.get_or_make(KEY, make) == cache.get_or_make(KEY, make) == DATA
    assert len(made) == 1


def test_other_tools_can_read_the_file(cache: Cache, folder: Path) -> None:
    cache.put(KEY, b"def f(): ...\n")
    assert entry(folder, cache).read_text().startswith("def f(): ...\n\nkeel cache 1 ")


@pytest.mark.parametrize(
    ("kind", "suffix"), [("", ""), ("a/b", ""), ("..", ""), ("a.b", ""), ("keel-draft", ""), ("a", "so"), ("a", "./x")]
)
def test_names_that_reach_elsewhere(kind: str, suffix: str) -> None:
    with pytest.raises(KeelError, match="bad-option"):
        Cache(kind, suffix)


# -- damage --------------------------------------------------------------------------------------------


def test_every_turned_bit_is_seen() -> None:
    held = sealed("name", b"what is kept")
    for at in range(8 * len(held)):
        turned = bytearray(held)
        turned[at // 8] ^= 1 << at % 8
        assert unsealed("name", bytes(turned)) is None
    assert unsealed("name", held) == b"what is kept"


def test_every_cut_is_seen() -> None:
    held = sealed("name", DATA)
    assert not any(unsealed("name", held[:n]) for n in range(len(held)))
    assert not any(unsealed("name", held[n:]) for n in range(1, len(held)))
    assert unsealed("name", held + b"\n") is None and unsealed("name", b"x" + held) is None


def replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


def folder_with_a_file(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_bytes(DATA)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda p: p.write_bytes(b""),
    "zeros": lambda p: p.write_bytes(bytes(p.stat().st_size)),
    "bytes without a checksum": lambda p: p.write_bytes(DATA),
    "another entry": lambda p: p.write_bytes(sealed("another", b"other")),
    "others may write": lambda p: p.chmod(0o622),
    "nobody may read": lambda p: p.chmod(0),
    "a folder": replaced(Path.mkdir),
    "a folder with a file": replaced(folder_with_a_file),
    "a pipe": replaced(os.mkfifo),
    "a link to nothing": replaced(lambda p: p.symlink_to("nothing")),
    "a link to a device": replaced(lambda p: p.symlink_to("/dev/zero")),
    "a link to the entry": lambda p: p.symlink_to(p.rename(p.with_name("moved"))),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_damaged_is_made_again(kind: str, cache: Cache, folder: Path) -> None:
    cache.put(KEY, b"old")
    DAMAGE[kind](entry(folder, cache))
    if kind != "nobody may read" or os.geteuid() != 0:  # root may read it
        assert cache.get(KEY) is None
    cache.put(KEY, DATA)
    assert cache.get(KEY) == DATA
    assert entry(folder, cache).is_file() and not entry(folder, cache).is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_an_entry_of_another_user_is_not_read(cache: Cache, folder: Path) -> None:
    cache.put(KEY, DATA)
    os.chown(entry(folder, cache), 12345, -1)
    assert cache.get(KEY) is None


# -- writing -------------------------------------------------------------------------------------------


def test_threads_write_and_read_at_once(cache: Cache, folder: Path) -> None:
    wrong: list[object] = []
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        start.wait()
        for turn in range(25):
            key = (str((seed + turn) % 3),)
            if cache.get_or_make(key, lambda key=key: key[0].encode() * 5000) != key[0].encode() * 5000:
                wrong.append(key)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong and len(list(folder.iterdir())) == 3


def test_killed_writers_leave_a_cache_that_works(cache: Cache, folder: Path) -> None:
    text = (
        "from keel.cache.store import Cache\nc = Cache('kernels', '.so')\nprint('ready', flush=True)\n"
        "for n in range(10**6): c.put((str(n % 7),), str(n % 7).encode() * 200_000)"
    )
    drawn = random.Random(7)
    writer = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
    for _ in range(3):
        time.sleep(drawn.random() / 20)
        os.kill(writer.pid, signal.SIGSTOP)  # as it is at any moment
        for n in range(7):
            assert cache.get((str(n),)) in (None, str(n).encode() * 200_000)
        os.kill(writer.pid, signal.SIGCONT)
    writer.kill()
    writer.wait()
    writer.stdout.close()
    cache.put(KEY, DATA)
    assert cache.get(KEY) == DATA


def test_drafts_left_behind_are_swept(cache: Cache, folder: Path) -> None:
    cache.put(KEY, DATA)
    old, file, new, foreign = (folder / name for name in (draft_name(), draft_name(), draft_name(), "notes"))
    old.mkdir()
    (old / "library.so").write_bytes(DATA)
    for path in (file, new, foreign):
        path.write_bytes(DATA)
    for path in (old, file, foreign):
        os.utime(path, (0, time.time() - STALE - 60))
    cache.put(KEY, DATA)
    assert {p.name for p in folder.iterdir()} == {cache.name(KEY), new.name, foreign.name}


# -- size ----------------------------------------------------------------------------------------------


def test_least_recently_used_entries_go(cache: Cache, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "cache").mkdir(mode=0o700)
    (folder / "notes").write_bytes(bytes(10_000))
    for n in range(5):
        cache.put((str(n),), bytes(1000))
        os.utime(entry(folder, cache, (str(n),)), (n, n))
    assert cache.get(("0",)) is not None  # used just now
    monkeypatch.setenv("KEEL_CACHE_SIZE", "4500")
    Cache("others").put(("5",), bytes(1000))
    assert [n for n in range(5) if cache.get((str(n),))] == [0, 3, 4]
    assert (folder / "notes").exists()


def test_what_is_larger_than_the_cache_is_not_kept(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_CACHE_SIZE", "0")
    assert cache.get_or_make(KEY, lambda: DATA) == DATA
    assert cache.get(KEY) is None


@pytest.mark.parametrize(
    ("text", "size"), [("500", 500), ("3k", 3 << 10), ("20M", 20 << 20), ("2G", 2 << 30), ("", 1 << 30)]
)
def test_sizes(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_CACHE_SIZE", text)
    assert size_limit() == size


@pytest.mark.parametrize("text", ["-1", "2GB", "many", "1e9", "9" * 40])
def test_what_is_no_size(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_CACHE_SIZE", text)
    with pytest.raises(KeelError, match="bad-option"):
        size_limit()
