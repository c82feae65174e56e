"""Reads files from untrusted sources: within limits, piece by piece, and with the place in each error.

Nothing here runs, imports or unpickles anything. ``Item`` is a piece of a document together with its place, so a reader
only states what it expects, and errors name the place. ``claim`` is for folders that a command writes: it takes one
that it made, or an empty one. ``printable`` escapes text of a document before it is printed.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import Any, NoReturn

from keel.errors import KeelError
from keel.errors import printable as printable

MOST_BYTES = 1 << 26
"""The most bytes of a document, unless its reader sets another limit: 64 MiB."""
MOST_MARKS = 1 << 22
"""The most commas, colons and brackets of a JSON text. They bound the number of its values, so that parsing takes about
a second at most."""
LARGEST = 1 << 64
"""The absolute value of an integer in a document must be below this."""
DEEPEST = 100
"""The most levels of nested lists and objects."""
_QUOTED = 80
_PLAIN = re.compile(r"[A-Za-z0-9_.:/-]{1,80}")


class Malformed(ValueError):
    """What is wrong with a document, and the ``place`` in it: ``graph.nodes[3].args``."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(why)
        self.place, self.why = place, why


def bad_file(
    path: str | os.PathLike[str], wrong: Malformed, *, what: str = "Its content is not valid.", do: str | None = None
) -> KeelError:
    """KeelError[bad-file] for what is ``wrong`` with the file.  ``what`` is a sentence about the file."""
    return KeelError("bad-file", f"{Path(path)} cannot be read. {what}", {wrong.place or "file": wrong.why}, do=do)


def bytes_of(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Reads a file. Raises KeelError[bad-option] if it does not exist, and Malformed for a folder, a pipe, a device, a
    file that cannot be read or that blocks its reader, or a file of more than ``most`` bytes.
    """
    try:
        _regular(os.stat(path), most)  # before it is opened: opening has an effect on some devices
        with open(path, "rb", opener=_at_once) as file:
            _regular(os.fstat(file.fileno()), most)  # another file may have taken its place
            held: bytes | None = file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError) as e:
        raise KeelError("bad-option", f"There is no file {path}.") from e
    except OSError as e:
        raise Malformed("", e.strerror or str(e)) from e
    except ValueError as e:
        if isinstance(e, Malformed):
            raise
        raise KeelError("bad-option", f"There is no file {path}.") from e  # an invalid path
    if held is None:
        raise Malformed("", "Reading it would block.")
    if len(held) > most:
        raise Malformed("", f"It has more than {most} bytes.")
    return held


def _regular(state: os.stat_result, most: int) -> None:
    """Raises Malformed."""
    if not stat.S_ISREG(state.st_mode):
        raise Malformed("", "It is not a regular file.")
    if state.st_size > most:
        raise Malformed("", f"It has more than {most} bytes.")


def _at_once(path: str, flags: int) -> int:
    """Opens a file without blocking; pipes and some system files would block."""
    return os.open(path, flags | os.O_NONBLOCK)


def text_of(path: str | os.PathLike[str], most: int = MOST_BYTES) -> str:
    """Reads a file as UTF-8 text.  Raises as ``bytes_of`` does, and Malformed if the bytes are not UTF-8."""
    return decoded(bytes_of(path, most))


def decoded(held: bytes) -> str:
    r"""Decodes bytes as UTF-8, with ``\n`` at the ends of lines.  Raises Malformed."""
    try:
        return held.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as e:
        raise Malformed(f"byte {e.start}", "It is not UTF-8 text.") from e


def parsed(text: str | bytes, place: str = "", *, constants: bool = False, most_marks: int = MOST_MARKS) -> Any:
    """Parses JSON. Raises Malformed for any other text, for a key that occurs twice in one object, for more than
    ``DEEPEST`` levels of nesting or more than ``most_marks`` marks between values, and, unless ``constants`` is true,
    for NaN and infinities, which JSON does not have.
    """
    text = decoded(text) if isinstance(text, bytes) else text
    if marks(text) > most_marks:  # before memory is allocated for any value
        raise Malformed(place, f"It has more than {most_marks} marks between values.")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=float if constants else _no_constant)
    except json.JSONDecodeError as e:
        raise Malformed(_joined(place, f"line {e.lineno}, column {e.colno}"), f"It is not JSON: {e.msg}.") from e
    except RecursionError as e:
        raise Malformed(place, f"It is nested more than {DEEPEST} times.") from e
    except ValueError as e:  # a repeated key, NaN, an integer with too many digits
        raise Malformed(place, str(e)) from e
    return shallow(value, place)


def shallow(value: Any, place: str = "") -> Any:
    """Returns ``value``.  Raises Malformed if its lists and objects are nested more than ``DEEPEST`` times."""
    if _deeper(value, DEEPEST):
        raise Malformed(place, f"It is nested more than {DEEPEST} times.")
    return value


def marks(text: str) -> int:
    """Counts the commas, colons and brackets of a text, also in strings: JSON has at most one value more than these."""
    return sum(map(text.count, ",:[{"))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"The key {shown(twice)} occurs twice in one object.")
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number.")


def _deeper(value: Any, levels: int) -> bool:
    """True if lists and objects are nested more than ``levels`` times."""
    held = [value]
    for _ in range(levels + 1):
        held = [w for v in held if isinstance(v, list | dict) for w in (v.values() if isinstance(v, dict) else v)]
        if not held:
            return False
    return any(isinstance(v, list | dict) for v in held)


def shown(value: Any) -> str:
    """Formats a value for a message and truncates it if it is long."""
    if isinstance(value, int) and abs(value) >= LARGEST:  # Python refuses to print some of them
        return "an integer of more than 64 bits"
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            text = repr(value[: _QUOTED + 1])
        case int() | float() | date() | time():  # TOML has dates and times
            text = str(value)
        case _:
            return _kind(value)
    return text if len(text) <= _QUOTED else text[:_QUOTED] + "..."


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else "an object"


def _joined(place: str, inner: str) -> str:
    return f"{place}, {inner}" if place else inner


@dataclass(frozen=True, slots=True)
class Item:
    """A value of a document and its place. Each method returns the value as one type, or raises Malformed with the
    place.
    """

    value: Any
    place: str = ""

    def refuse(self, why: str) -> NoReturn:
        raise Malformed(self.place, why)

    def _fail(self, what: str) -> NoReturn:
        self.refuse(f"It is {shown(self.value)}, not {what}.")

    def _at(self, key: str) -> Item:
        name = key if _PLAIN.fullmatch(key) else shown(key)
        return Item(self.value[key], f"{self.place}.{name}" if self.place else name)

    def record(self, needed: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Item]:
        """Returns an object that has all ``needed`` keys and no others except ``optional`` ones."""
        if not isinstance(self.value, dict):
            self._fail("an object")
        if lacking := [k for k in needed if k not in self.value]:
            self.refuse(f"It lacks {', '.join(lacking)}.")
        if unknown := [k for k in self.value if k not in needed and k not in optional]:
            self.refuse(f"It has an unknown key {shown(unknown[0])}.")
        return {k: self._at(k) for k in self.value}

    def table(self, most: int = 1 << 20) -> dict[str, Item]:
        """Returns an object with any keys, at most ``most`` of them."""
        if not isinstance(self.value, dict):
            self._fail("an object")
        if len(self.value) > most:
            self.refuse(f"It has {len(self.value)} entries, more than {most}.")
        return {k: self._at(k) for k in self.value}

    def items(self, most: int = 1 << 20, count: int | None = None) -> list[Item]:
        """Returns a list, of ``count`` elements if that is given."""
        if not isinstance(self.value, list):
            self._fail("a list")
        if len(self.value) > most:
            self.refuse(f"It has {len(self.value)} elements, more than {most}.")
        if count is not None and len(self.value) != count:
            self.refuse(f"It has {len(self.value)} elements, not {count}.")
        return [Item(v, f"{self.place}[{i}]") for i, v in enumerate(self.value)]

    def text(self, most: int = 1 << 16) -> str:
        if not isinstance(self.value, str):
            self._fail("a text")
        if len(self.value) > most:
            self.refuse(f"It has {len(self.value)} characters, more than {most}.")
        return self.value

    def prose(self, most: int = 1 << 16) -> str:
        """Returns a text for display: terminal control characters are replaced by codes."""
        return printable(self.text(most))

    def like(self, form: re.Pattern[str], what: str) -> str:
        """Returns a text that matches ``form``; ``what`` describes such a text."""
        if not isinstance(self.value, str) or form.fullmatch(self.value) is None:
            self._fail(what)
        return self.value

    def one_of(self, known: Sequence[str], what: str) -> str:
        if not isinstance(self.value, str) or self.value not in known:
            self._fail(what)
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self._fail("true or false")
        return self.value

    def integer(self, least: int = 1 - LARGEST, most: int = LARGEST - 1) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self._fail("an integer")
        if not least <= self.value <= most:
            self.refuse(f"It is {shown(self.value)}, not between {least} and {most}.")
        return self.value

    def number(self, least: float = -math.inf, most: float = math.inf) -> float:
        """Returns a finite number."""
        if not isinstance(self.value, int | float) or isinstance(self.value, bool):
            self._fail("a number")
        try:
            value = float(self.value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value) or not least <= value <= most:
            self.refuse(f"It is {shown(self.value)}, not a number between {least:g} and {most:g}.")
        return value


# -- what commands write -----------------------------------------------------------------------------------------------


def replace_file(path: Path, held: bytes) -> None:
    """Replaces whatever has this name by a file. In a folder that somebody else made, the name may be a pipe, or a link
    to a file of the user's; the link's target is not written to.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(draft, "xb") as file:
            file.write(held)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


MARKER = ".keel-made"
"""A file in each folder that a command made: the name of the command, and below it the files that it wrote."""


def claim(folder: Path, maker: str) -> frozenset[str]:
    """Makes a folder that the command ``maker`` may write to, or takes one that is empty or that it made before.
    Returns the files that it listed there.

    Raises KeelError[bad-option] for any other folder, and then neither writes nor deletes anything in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = sorted(p.name for p in folder.iterdir())
    except OSError as e:
        raise KeelError("bad-option", f"{folder} is not a writable folder.", {maker: e.strerror or str(e)}) from e
    if not held:
        (folder / MARKER).write_text(f"{maker}\n", encoding="utf-8")
        return frozenset()
    lines = text_of(folder / MARKER).splitlines() if (folder / MARKER).is_file() else []
    if lines[:1] != [maker]:
        whose = (
            f"{lines[0]} made it."
            if lines
            else f"It holds {held[0]}"
            + (f" and {len(held) - 1} more, none of which it made." if len(held) > 1 else ", which it did not make.")
        )
        raise KeelError(
            "bad-option",
            f"{maker} does not write into {folder}.",
            {maker: whose},
            do="Name an empty folder, or one that does not exist yet.",
        )
    return frozenset(lines[1:])


def listed(folder: Path, maker: str, files: Iterable[str]) -> None:
    """Notes in a claimed folder which files ``maker`` made, as paths below it."""
    (folder / MARKER).write_text("".join(f"{line}\n" for line in (maker, *sorted(files))), encoding="utf-8")
