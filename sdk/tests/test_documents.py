"""Documents are taken apart within limits, what is wrong is said with its place, and folders belong to their makers."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from keel import KeelError
from keel.documents import DEEPEST, MARKER, Item, Malformed, bad_file, bytes_of, claim, listed, parsed, shown, text_of

from .soon import soon


def place_of(call: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(Malformed) as raised:
        call()
    return raised.value.place, raised.value.why


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("{", "line 1, column 2", "It is not JSON: Expecting property name enclosed in double quotes."),
        ("", "line 1", "not JSON"),
        ("[NaN]", "", "NaN is not a JSON number"),
        ("[-Infinity]", "", "-Infinity is not a JSON number"),
        ('{"a": 1, "b": {"a": 1, "a": 2}}', "", "The key 'a' occurs twice in one object."),
        (b"\xff", "byte 0", "not UTF-8 text"),
        ("9" * 5000, "", "Exceeds the limit"),
        ("[" * (DEEPEST + 2) + "]" * (DEEPEST + 2), "", "nested more than"),
        ("[" * 1_000_000, "", "nested more than"),
    ],
)
def test_what_is_no_json(text: str | bytes, place: str, why: str) -> None:
    where, said = place_of(lambda: parsed(text))
    assert where.startswith(place) and why in said


@pytest.mark.slow
@pytest.mark.parametrize(
    "document",
    [
        lambda: "[" + "[]," * (1 << 23) + "0]",
        lambda: "{" + ",".join(f'"{i}":0' for i in range(1 << 22)) + "}",
        lambda: "{" + "".join(f'"{i}":0,' for i in range(200_000)) + '"a":0,"a":1}',
    ],
    ids=["lists", "keys", "a key that stands twice"],
)
def test_large_documents_are_refused_soon(document: Callable[[], str]) -> None:
    text = document()
    with soon():
        assert place_of(lambda: parsed(text))[0] == ""


def test_what_is_json() -> None:
    assert parsed(b'{"a": [1, 2.5, null, "\\u00e9"]}') == {"a": [1, 2.5, None, "é"]}
    assert parsed("[NaN, Infinity]", constants=True)[1] == float("inf")
    deep = parsed("[" * DEEPEST + "]" * DEEPEST)
    assert str(deep).count("[") == DEEPEST


ITEM = Item({"a": [1, {"b": "x"}], "c": True, "a b\n": 2, "d": 1.5, "e": None})


@pytest.mark.parametrize(
    ("call", "place", "why"),
    [
        (lambda: ITEM.record(("a", "z")), "", "It lacks z."),
        (lambda: ITEM.record(("a",)), "", "It has an unknown key 'c'"),
        (lambda: ITEM.table()["a"].items()[1].table()["b"].integer(), "a[1].b", "It is 'x', not an integer."),
        (lambda: ITEM.table()["a"].items(1), "a", "It has 2 elements, more than 1."),
        (lambda: ITEM.table()["a"].items(count=3), "a", "It has 2 elements, not 3."),
        (lambda: ITEM.table(2), "", "5 entries"),
        (lambda: ITEM.table()["a b\n"].text(), "'a b\\n'", "It is 2, not a text."),
        (lambda: ITEM.table()["c"].integer(), "c", "It is true, not an integer."),
        (lambda: ITEM.items(), "", "not a list"),
        (lambda: ITEM.table()["d"].number(2), "d", "not a number between 2 and inf"),
        (lambda: ITEM.table()["e"].flag(), "e", "It is null, not true or false."),
        (lambda: Item(10**5000).number(), "", "an integer of more than 64 bits"),
        (lambda: Item(10**5000).integer(), "", "an integer of more than 64 bits"),
        (lambda: Item(date(2027, 1, 31)).text(), "", "It is 2027-01-31, not a text."),
        (lambda: Item("x" * 99).one_of(("y",), "y"), "", "..., not y."),
        (lambda: Item("x" * 99).text(9), "", "99 characters"),
    ],
)
def test_items_say_what_they_are_not(call: Callable[[], Any], place: str, why: str) -> None:
    where, said = place_of(call)
    assert where == place and why in said


def test_values_are_shown_in_one_short_line() -> None:
    assert shown("a\nb") == "'a\\nb'" and len(shown("x" * 10_000)) < 100
    assert shown([1]) == "a list" and shown({}) == "an object" and shown((1,) * 3) == "an object"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(b"x" * 11)
    for path in (tmp_path, tmp_path / "pipe"):
        assert place_of(lambda path=path: bytes_of(path)) == ("", "It is not a regular file.")  # type: ignore[misc]
    assert place_of(lambda: bytes_of(tmp_path / "long", 10))[1] == "It has more than 10 bytes."
    os.symlink("/dev/zero", tmp_path / "endless")
    assert place_of(lambda: bytes_of(tmp_path / "endless"))[1] == "It is not a regular file."
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    assert "more than" in place_of(lambda: bytes_of(tmp_path / "sparse"))[1]
    assert text_of(tmp_path / "long", 11) == "x" * 11
    with pytest.raises(KeelError, match="There is no file") as raised:
        bytes_of(tmp_path / "long" / "none")
    assert raised.value.code == "bad-option"
    with pytest.raises(KeelError, match="There is no file"):
        bytes_of(tmp_path / "a\0b")


def test_a_file_that_keeps_its_reader_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /proc/kmsg does, which counts as a file: here a pipe in its place that nobody writes to."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    state = os.stat(tmp_path / "file")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    monkeypatch.setattr(os, "fstat", lambda descriptor: state)
    monkeypatch.setattr(os, "stat", lambda path: state)
    try:
        assert place_of(lambda: bytes_of(tmp_path / "pipe")) == ("", "Reading it would block.")
    finally:
        os.close(writer)


def test_an_error_names_the_file_and_the_place() -> None:
    assert str(bad_file("a.json", Malformed("b[3]", "It is 2."), what="It holds no b.", do="Write one.")) == (
        "KeelError[bad-file]: a.json cannot be read. It holds no b.\n  b[3]: It is 2.\nWrite one."
    )


# -- folders ----------------------------------------------------------------------------------------------------------


def test_a_folder_is_claimed_once(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert claim(folder, "keel try") == frozenset()
    (folder / "file").touch()
    listed(folder, "keel try", ["file"])
    assert claim(folder, "keel try") == {"file"} and (folder / MARKER).read_text() == "keel try\nfile\n"
    with pytest.raises(KeelError, match=r"keel else does not write into .*\n  keel else: keel try made it"):
        claim(folder, "keel else")


@pytest.mark.parametrize("names", [["mine"], ["mine", "yours"], [".hidden"]])
def test_a_folder_of_somebody_else_is_refused(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(KeelError, match=rf"(?s)It holds .*{names[0]}.*did not make|none of which") as raised:
        claim(tmp_path, "keel try")
    assert raised.value.code == "bad-option" and sorted(p.name for p in tmp_path.iterdir()) == sorted(names)
    with pytest.raises(KeelError, match="is not a writable folder"):
        claim(tmp_path / names[0], "keel try")
