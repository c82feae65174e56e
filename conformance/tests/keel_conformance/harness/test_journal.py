"""Damaged and forged logs: the error names the line that does not belong in a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from keel import KeelError
from keel_conformance.harness.journal import FILE, Journal, read, stating
from keel_conformance.results.verdict import Verdict

HEAD = {"backend": "acme", "shard": "1/1", "cases": 2, "seed": 0, "ops": ["neg"]}


def line(**said: Any) -> str:
    return json.dumps(said) + "\n"


def verdict(**said: Any) -> str:
    return line(end=[{"case": "neg/1", "status": "pass", **said}])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "line 1"),
        ("{\n", "line 1, line 1, column 2: It is not JSON"),
        ("[]\n", "It is a list, not an object"),
        (line(note=1), "line 1: It has an unknown key 'note'"),
        (line(run={}, begin=[]), "line 1: It is a line that no run writes"),
        (line(run={}) + line(begin=[3]), "line 2.begin[0]: It is 3, not a text"),
        (line(end=[{}]), "It lacks case, status"),
        (verdict(status="fine"), "There is no status 'fine'"),
        (verdict(more=1), "It has an unknown key 'more'"),
        (verdict(figures=[]), "line 1.end[0].figures: It is a list"),
        (verdict(figures={"ratio": "x"}), "It is not a number"),
        (verdict(figures={"call": "x"}), "line 1.end[0].figures.call"),
        (verdict(figures={"index": "x"}), "figures.index: It is 'x', not a list"),
        (verdict(figures={"index": [-1]}), "figures.index[0]"),
        (verdict(figures={"ulps": True}), "It is not a number"),
        (verdict(figures={"histogram": [1]}), "It has 1 elements, not 12"),
        (verdict(figures={"wrong": 0.5}), "figures.wrong"),
        (verdict(figures={"histogram": ["x"] * 12}), "figures.histogram[0]"),
        (verdict(figures={"fault": []}), "figures.fault"),
        (verdict(figures={"ulps": 1 << 70}), "more than 64 bits"),
        (verdict(figures={"other": 1}, seed=1), "It has an unknown key 'seed'"),
        (verdict(figures={"more": 1}), "It has an unknown key 'more'"),
        (line(run={"note": "x"}), "line 1.run: It has an unknown key 'note'"),
        (verdict(seconds=-1), "not a number between 0 and inf"),
        (verdict(sentence=None), "It is null, not a text"),
        (line(run={"shard": "1/" + "9" * 30}), "not a shard"),
        (line(run={"ops": "neg"}), "not a list"),
        (line(run={"seed": 1.5}), "not an integer"),
        ("\udcff\n", "not UTF-8 text"),
        ("[" * 100_000 + "\n", "nested more"),
        ('{"run": {"seed": ' + "9" * 5000 + "}}\n", "line 1"),
    ],
)
def test_lines_that_no_run_writes(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
    if "\n" not in text:  # it was cut off, and counts as not written
        assert read(tmp_path / FILE) == (None, {}, 0)
        return
    with pytest.raises(KeelError) as raised:
        read(tmp_path / FILE)
    assert raised.value.code == "bad-file" and why in str(raised.value)


def test_what_steers_a_terminal_is_read_as_codes(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(
        line(run=HEAD | {"backend": "a\x1b[31m"})
        + verdict(
            oracle="\x9b", sentence="\x1b]0;x\x07 \ud800 ü", clause="\u202e", figures={"fault": "\x1b", "ratio": None}
        )
    )
    head, found, _ = read(tmp_path / FILE)
    assert head is not None and head["backend"] == "a\\x1b[31m"
    assert found["neg/1"] == Verdict(
        "neg/1", "pass", "\\x9b", "\\x1b]0;x\\x07 \\ud800 ü", "\\u202e", {"fault": "\\x1b"}
    )


def test_only_who_goes_on_with_a_log_writes_to_it(tmp_path: Path) -> None:
    whole = line(run=HEAD) + verdict(figures={"ratio": float("inf"), "index": [1]})
    (tmp_path / FILE).write_text(whole + '{"begin": ["ne')
    head, found, _ = read(tmp_path / FILE)
    assert head == HEAD and found["neg/1"] == Verdict("neg/1", "pass", figures={"ratio": float("inf"), "index": [1]})
    assert (tmp_path / FILE).read_text() != whole
    Journal.opened(tmp_path, HEAD, resume=True).close()
    assert (tmp_path / FILE).read_text() == whole


def test_what_a_head_has_to_state(tmp_path: Path) -> None:
    assert stating(tmp_path / FILE, HEAD, "seed", "ops") == HEAD
    for head, why in ((HEAD, "lacks profile"), (None, "no head")):
        with pytest.raises(KeelError, match=why):
            stating(tmp_path / FILE, head, "profile")
