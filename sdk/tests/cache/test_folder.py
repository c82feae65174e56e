"""Where the cache may be: folders that are the user's alone, and a temporary one for all others."""

from __future__ import annotations

import errno
import os
import stat
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from keel import KeelWarning
from keel.cache import Cache
from keel.cache import folder as rooms

KEY, DATA = ("text",), b"what is kept"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def cache() -> Cache:
    return Cache("kernels")


def stands_in(root: Path) -> Path:
    return rooms._TEMPORARY[root, os.getpid()]


def writable_by(mode: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.mkdir()
        path.chmod(mode)

    return make


def of_another_user(path: Path) -> None:
    path.mkdir(mode=0o700)
    os.chown(path, 12345, -1)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "all may write": (writable_by(0o777), "other users may write to it"),
    "all may write, as to /tmp": (writable_by(0o1777), "other users may write to it"),
    "the group may write": (writable_by(0o770), "other users may write to it"),
    "a file": (lambda p: p.write_text(""), "File exists"),
    "a link to nothing": (lambda p: p.symlink_to("/proc/nothing/here"), "File exists|No such file"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_folder_that_cannot_be_trusted_has_a_stand_in(kind: str, root: Path, cache: Cache) -> None:
    make, why = REFUSED[kind]
    make(root)
    with pytest.warns(KeelWarning, match=why) as warned:
        cache.put(KEY, DATA)
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get(KEY) == DATA  # one warning is enough
        cache.put(("more",), DATA)
    place = stands_in(root)
    assert place.stat().st_mode & 0o777 == 0o700 and (place / cache.name(KEY)).is_file()
    assert not root.is_dir() or list(root.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to another user")
def test_what_another_user_planted_is_not_read(root: Path, cache: Cache) -> None:
    cache.put(KEY, b"planted")
    os.chown(root, 12345, -1)
    with pytest.warns(KeelWarning, match="it belongs to another user"):
        assert cache.get_or_make(KEY, lambda: DATA) == DATA


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_folder_that_takes_nothing_has_a_stand_in(
    code: int, root: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put(("before",), DATA)
    flush = os.fsync

    def full(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(root)):
            raise OSError(code, os.strerror(code))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(KeelWarning, match=os.strerror(code)) as warned:
        for n in range(3):
            cache.put((str(n),), DATA)
    assert len(warned) == 1
    assert cache.get(("before",)) == cache.get(("2",)) == DATA
    assert [p.name for p in root.iterdir()] == [cache.name(("before",))]


def test_with_no_folder_at_all_nothing_is_kept(
    root: Path, tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.write_text("")
    monkeypatch.setattr(rooms.tempfile, "mkdtemp", lambda **_: (_ for _ in ()).throw(FileNotFoundError("no folder")))
    assert cache.get_or_make(KEY, lambda: DATA) == DATA
    assert cache.get(KEY) is None
    with pytest.raises(OSError, match="no folder"), rooms.workspace():
        pass


def test_a_forked_child_has_a_stand_in_of_its_own(root: Path, cache: Cache) -> None:
    root.write_text("")
    with pytest.warns(KeelWarning):
        cache.put(KEY, DATA)
    place = stands_in(root)
    rooms._remove(place, os.getpid() + 1)
    assert place.exists()
    rooms._remove(place, os.getpid())
    assert not place.exists()


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEEL_CACHE_DIR", "here")
    assert rooms.root() == tmp_path / "here"
    monkeypatch.delenv("KEEL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert rooms.root() == Path("/caches/keel")
    for odd in ("", "caches", "./caches"):
        monkeypatch.setenv("XDG_CACHE_HOME", odd)
        assert rooms.root() == Path.home() / ".cache" / "keel"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert rooms.root() == Path("/home/someone/.cache/keel")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert rooms.root().name == f"keel-{os.geteuid()}"


def test_a_workspace_is_private_and_gone_afterwards(root: Path) -> None:
    with rooms.workspace() as one, rooms.workspace() as other:
        assert one != other and one.parent == other.parent == root
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
        (one / "file").write_text("")
        assert rooms.lacks_room(one) is None
    assert list(root.iterdir()) == []
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.warns(KeelWarning, match="No space left"), rooms.workspace(full) as place:
        assert place.parent == stands_in(root)
