"""What changed between two locks, each change with a sentence and with the part of the version that must rise for it.

The rule behind the table: a program that ran with a backend goes on running with it and meaning the same until the
next major version.  What only newer versions ask of a backend, or only newer programs use, is minor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keel.spec.lock import Lock
from keel.spec.versions import Change, Version, version

LEVELS: tuple[Change, ...] = ("major", "minor", "patch")
EXPERIMENTAL = "experimental"
"""The tag of members about which nothing is promised but that their changes are listed."""

Member = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """One change to one member."""

    level: Change
    member: str
    sentence: str


def diff(a: Lock, b: Lock) -> list[Difference]:
    """All changes from ``a`` to ``b``, the weightiest first."""
    old, new = a["members"], b["members"]
    results = [d for name in sorted({*old, *new}) for d in _member(name, old.get(name), new.get(name))]
    return sorted(results, key=lambda d: LEVELS.index(d.level))


def level(differences: Sequence[Difference]) -> Change | None:
    """What must rise at least; None if nothing changed."""
    return min((d.level for d in differences), key=LEVELS.index, default=None)


def next_version(a: Lock, differences: Sequence[Difference]) -> Version:
    """The first version that may hold these changes to ``a``."""
    known, needed = version(a["opset"]), level(differences)
    return known if needed is None else known.after(needed)


def _member(name: str, old: Member | None, new: Member | None) -> Iterator[Difference]:
    experimental = old is not None and EXPERIMENTAL in old["tags"]
    if old is None or new is None:
        change: Change = "minor" if old is None or experimental else "major"
        yield Difference(change, name, "It is new." if old is None else "It is gone.")
        return
    for change, sentence in _changes(old, new):
        yield Difference("minor" if experimental and change == "major" else change, name, sentence)


def _changes(old: Member, new: Member) -> Iterator[tuple[Change, str]]:
    if old["digest"] == new["digest"]:
        return
    yield from _kind(old["kind"], new["kind"])
    if old["profile"] != new["profile"]:
        yield "major", f"It moves from profile {old['profile']} to {new['profile']}."
    yield from _overloads(old["overloads"], new["overloads"])
    yield from _sentences(
        "clause", list(old["clauses"].values()), list(new["clauses"].values()), added="minor", gone="major"
    )
    yield from _sentences("precondition", old["requires"], new["requires"], added="major", gone="minor")
    yield from _results(old["results"], new["results"])
    for part, what in (("operands", "The operands of its normal form"), ("compute", "The dtype that it computes in")):
        if old[part] != new[part]:
            yield "major", f"{what} changed from {old[part]} to {new[part]}."
    yield from _set("dtype", old["dtypes"], new["dtypes"], "major")
    yield from _budget(old["budget"], new["budget"])
    yield from _set("tag", old["tags"], new["tags"], "minor")
    if EXPERIMENTAL in new["tags"] and EXPERIMENTAL not in old["tags"]:
        yield "major", "It was stable and is experimental now."
    if old["family"] != new["family"]:
        yield "minor", f"It moves from family {old['family']} to {new['family']}."
    for part, what in (
        ("doc", "Its description"),
        ("reason", "The reason why it is opaque"),
        ("decomposition", "Whose decomposition it has"),
    ):
        if old[part] != new[part]:
            yield "patch", f"{what} is now: {new[part]}"


def _kind(old: str, new: str) -> Iterator[tuple[Change, str]]:
    match old, new:
        case _ if old == new:
            return
        case ("primitive", "composite"):
            yield "minor", "A primitive becomes a composite: backends no longer need it."
        case ("opaque", _):
            yield "minor", f"It was opaque and is a {new} now."
        case (_, "opaque"):
            yield "major", f"It was a {old} and is opaque now."
        case _:
            yield "major", "A composite becomes a primitive: backends that took its pieces have to take it whole."


def _overloads(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[Change, str]]:
    yield from _set("overload", old, new, "major")
    if old[:1] != new[:1]:
        yield "major", f"Its normal form is {', '.join(new[:1])} and was {', '.join(old[:1])}."


def _set(what: str, old: Sequence[str], new: Sequence[str], gone: Change) -> Iterator[tuple[Change, str]]:
    for name in sorted(set(old) - set(new)):
        yield gone, f"It loses the {what} {name}."
    for name in sorted(set(new) - set(old)):
        yield "minor", f"It gains the {what} {name}."


def _sentences(
    what: str, old: Sequence[str], new: Sequence[str], *, added: Change, gone: Change
) -> Iterator[tuple[Change, str]]:
    """Sentences are known by their words, so that a comma or a capital letter does not count as a change of meaning."""
    before, after = {_words(s): s for s in old}, {_words(s): s for s in new}
    yield from ((gone, f"The {what} is gone: {s}") for k, s in before.items() if k not in after)
    yield from ((added, f"The {what} is new: {s}") for k, s in after.items() if k not in before)
    for key in (k for k in before if k in after):
        if what == "clause" and list(before).index(key) != list(after).index(key):
            yield "major", f"The clause has another number, by which tests cite it: {after[key]}"
        elif before[key] != after[key]:
            yield "patch", f"The {what} is spelt: {after[key]}"


def _words(sentence: str) -> str:
    """What remains of a sentence without capitals, spaces and the marks between words."""
    return " ".join("".join(" " if c in " ,;:.\n" else c for c in sentence.lower()).split())


def _results(old: Any, new: Any) -> Iterator[tuple[Change, str]]:
    if old == new:
        return
    if old is None or (isinstance(old, str) and isinstance(new, str) and _words(old) == _words(new)):
        yield "patch" if old else "minor", "The types of its results are written down."
        return
    if not (isinstance(old, list) and isinstance(new, list) and len(old) == len(new)):
        yield "major", "The types of its results are given by another rule."
        return
    for i, (was, now) in enumerate(zip(old, new, strict=True)):
        for part in was:
            if was[part] != now[part]:
                yield "major", f"The {part} of result {i} is {now[part]} and was {was[part]}."


def _budget(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[Change, str]]:
    for dtype in sorted({*old, *new}):
        was, now = old.get(dtype), new.get(dtype)
        if was == now:
            continue
        if was is None or now is None:
            yield (
                ("minor" if was is None else "major"),
                (f"Its error in {dtype} is {_error(now)}." if now else f"Its error in {dtype} is bounded no more."),
            )
            continue
        tighter = was.keys() == now.keys() and all(now[k] <= was[k] for k in was)
        yield ("minor" if tighter else "major"), f"Its error in {dtype} is {_error(now)} and was {_error(was)}."


def _error(budget: Mapping[str, float]) -> str:
    words = {"ulps": "at most {:g} ulps", "times": "at most {:g} times eager's"}
    return " or ".join(words[k].format(v) for k, v in budget.items()) or "bounded by nothing"
