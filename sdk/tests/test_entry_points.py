"""Entry points of installed distributions, the sound and the damaged."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.entry_points import FEW, MOST, Carried, Fault, carried, unreadable

GROUP = "acme.parts"
Install = Callable[..., Path]
HERE = sys.modules["keel.entry_points"]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """``install(folder, entry points, metadata)`` makes a distribution; nothing else is installed."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    def make(folder: str, points: bytes | None, metadata: bytes | None = b"Name: zeta\nVersion: 1\n") -> Path:
        info = tmp_path / folder
        info.mkdir()
        for name, held in (("entry_points.txt", points), ("METADATA", metadata)):
            if held is not None:
                (info / name).write_bytes(held)
        return info

    return make


def section(*lines: str) -> bytes:
    return "\n".join((f"[{GROUP}]", *lines)).encode()


def read() -> tuple[list[tuple[str, str, str]], list[Fault]]:
    points, faults = carried(GROUP)
    assert all(isinstance(p, Carried) and isinstance(p.dist, Distribution) and p.group == GROUP for p in points)
    return [(p.package, p.name, p.value) for p in points], faults


def test_sound_ones(install: Install) -> None:
    held = section(" a = b:c ", "", "# d", "e-f = g")
    install("zeta-1.dist-info", b"# parts\n[other]\nx = y:z\n" + held + b"\n[more]\nh = i")
    install("eta.egg-info", section("a = eta:a"), b"Name: Eta\n")
    install("quiet-1.dist-info", None, None)
    install("else-1.dist-info", b"[other]\nlone\n", None)
    points, faults = read()
    assert sorted(points) == [("Eta", "a", "eta:a"), ("zeta", "a", "b:c"), ("zeta", "e-f", "g")] and not faults


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("lone", "The entry point 'lone' of group acme.parts is not of the form name = module:attribute."),
        ("lone =", "is not of the form"),
        ("= b:c", "has a name that is not of letters"),
        ("a b = c:d", "'a b' of group"),
        ("../../etc = c:d", "'../../etc' of group"),
        ("\x1b[31mred = c:d", r"'\x1b[31mred' of group"),
        ("n" * 101 + " = c:d", "has a name that"),
        ("n = " + "m" * 1000, "more than 1000 characters"),
        ("good = c:d", "'good' of group acme.parts occurs twice; the first one counts."),
    ],
    ids=str,
)
def test_a_malformed_line_costs_itself(line: str, said: str, install: Install) -> None:
    install("zeta-1.dist-info", section("good = a:b", line))
    points, [fault] = read()
    assert points == [("zeta", "good", "a:b")] and fault.package == "zeta"
    assert len(fault.sentences) == 1 and said in fault.sentences[0]
    assert fault.sentences[0].isprintable() and len(fault.sentences[0]) < 250


def test_only_some_faults_are_told(install: Install) -> None:
    install("zeta-1.dist-info", section(*(f"lone{i}" for i in range(FEW + 7))))
    _, [fault] = read()
    assert len(fault.sentences) == FEW + 1 and fault.sentences[-1] == "7 more are malformed."


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (None, "Its METADATA is missing or has no name."),
        (b"Version: 1\n", "is missing or has no name"),
        ("Name: z\xeat\xe5\n".encode("latin-1"), "Its METADATA cannot be read: it is not UTF-8 text."),
        (b"Name: torch-keel\n", "Its METADATA has the name 'torch-keel', and its folder the name 'zeta'."),
    ],
    ids=str,
)
def test_a_distribution_is_known_by_its_folder(metadata: bytes | None, said: str, install: Install) -> None:
    install("zeta-1.dist-info", section("a = b:c"), metadata)
    points, [fault] = read()
    assert points == [("zeta", "a", "b:c")] and fault.package == "zeta" and said in fault.sentences[0]


def test_the_first_of_a_name_counts(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("zeta-1.dist-info", section("a = first:c"))
    second = tmp_path / "second"
    second.mkdir()
    os.rename(install("Zeta-2.dist-info", section("a = second:c"), b"Name: zeta\n"), second / "Zeta-2.dist-info")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(second)])
    assert read() == ([("zeta", "a", "first:c")], [])


def test_what_cannot_be_read_costs_its_distribution(install: Install, tmp_path: Path) -> None:
    install("latin-1.dist-info", "[acme.parts]\n\xe5 = b:c".encode("latin-1"))
    os.symlink("entry_points.txt", install("loop-1.dist-info", None) / "entry_points.txt")
    os.symlink("ring-1.dist-info", tmp_path / "ring-1.dist-info")
    (install("folder-1.dist-info", None) / "entry_points.txt").mkdir()
    (tmp_path / "file-1.dist-info").write_text("x")
    (tmp_path / ".dist-info").mkdir()
    install("-.dist-info", section("a = nameless:c"), None)
    install("zeta-1.dist-info", section("a = b:c"))
    points, faults = read()
    assert ("zeta", "a", "b:c") in points
    assert {fault.package for fault in faults} >= {"latin", "loop", "ring"}
    assert all(" ".join(fault.sentences).isprintable() for fault in faults)


def test_so_many_are_refused_quickly_and_what_is_installed_later_is_found(install: Install) -> None:
    many = install("zeta-1.dist-info", section(*(f"a{i} = b:c" for i in range(500_000))))
    began = time.process_time()
    for _ in range(10):
        points, [fault] = read()
        assert not points and f"more than {MOST} entry points" in fault.sentences[0]
    assert time.process_time() - began < 5.0  # importlib takes three seconds for each
    (many / "entry_points.txt").write_bytes(section("a = b:c"))
    install("eta-1.dist-info", section("a = eta:a"), b"Name: eta\n")
    assert sorted(read()[0]) == [("eta", "a", "eta:a"), ("zeta", "a", "b:c")]


def test_a_text_is_taken_apart_once(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("zeta-1.dist-info", section("once = b:c"))
    first = read()
    monkeypatch.setattr(HERE, "_section", lambda text, group: pytest.fail("it is taken apart again"))
    assert read() == first == ([("zeta", "once", "b:c")], [])


def test_what_pythons_own_reader_does_not_read(install: Install) -> None:
    install("latin-1.dist-info", "[other]\n\xe5 = b:c".encode("latin-1"))
    install("lone-1.dist-info", b"[other]\nlone\n")
    install("zeta-1.dist-info", section("a = b:c"))
    install("quiet-1.dist-info", None)
    assert {fault.package for fault in unreadable()} == {"latin", "lone"}
    assert all(fault.sentences[0].startswith("Its entry_points.txt cannot be read: ") for fault in unreadable())


LINE = st.text(st.characters(codec="utf-8") | st.sampled_from("=[]#:\n\x00\x1b "), max_size=30)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(st.one_of(LINE, LINE.map("a = {}".format), LINE.map("{} = b:c".format)), max_size=8),
    metadata=st.none() | st.binary(max_size=60) | LINE.map(lambda t: f"Name: {t}".encode()),
)
def test_whatever_files_hold(
    lines: list[str], metadata: bytes | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("drawn")
    info = folder / "zeta-1.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_bytes(section("good = a:b", *lines))
    if metadata is not None:
        (info / "METADATA").write_bytes(metadata)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(folder)])
        points, faults = read()
    assert ("good", "a:b") in [(name, value) for _, name, value in points]
    for package, name, _ in points:
        assert package.isprintable() and name.isascii() and name.isprintable()
    assert all(f.package.isprintable() and " ".join(f.sentences).isprintable() for f in faults)
