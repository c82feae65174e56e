"""Mutations of files: of bytes, of words, and of the values of JSON, drawn from a seed alone."""

from __future__ import annotations

import copy
import io
import json
import random
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]

CANARY = "__import__('keel_canary').sing()"
"""Code that would be noticed if it ran."""
WORDS = (
    "",
    "0",
    "-1",
    "1e999",
    "NaN",
    "null",
    "true",
    "[]",
    "{}",
    "s0",
    "u0",
    "9" * 30,
    "9" * 5000,
    "**",
    "10**10**10",
    "(" * 200,
    "[" * 2000,
    "*",
    "%0",
    "%999",
    "//0",
    "é",
    "\x00",
    "\u2028",
    "self",
    "class",
    "forward",
    "..",
    "../../x",
    CANARY,
    f"x={CANARY}",
    f"x): {CANARY} #",
    f"a\n  {CANARY}",
    "os.system",
    "keel_canary",
    "keel_canary:backend",
    "_dynamo",
    "lambda: 0",
    "__class__",
    "training",
    "higher_order.print.default",
    "aten.add.Tensor",
    "collections.namedtuple",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    7,
    1 << 31,
    1 << 63,
    1 << 64,
    -(1 << 63),
    10**400,
    0.5,
    1e308,
    -0.0,
    "",
    "x",
    "s0",
    CANARY,
    "9" * 5000,
    [],
    {},
    [[]],
    ["Pow", 10, ["Pow", 10, 10]],
    ["Pow", "s77", 40],
    ["Mod", 1, 0],
    ["FloorDiv", "s77", 0],
    ["Mul", *([["Add", "s77", 1]] * 30)],
    ["Max", *range(60)],
    {"node": "x"},
    {"graph": "x"},
    {"dtype": "onnx"},
    {"device": CANARY},
    {"tuple": [[]]},
    {"dict": [[[], 1]]},
    {"slice": [0, 1]},
    {"float": "inf"},
    {"operator": "higher_order.cond.default"},
    {"complex": [1]},
    "float32",
    "cpu",
    "keel_canary:backend",
)


def of_bytes(data: bytes, draw: random.Random) -> bytes:
    """Some bytes turned, taken away, repeated, put elsewhere, or words put in."""
    held = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4, 8))):
        at, end = sorted((draw.randint(0, len(held)), draw.randint(0, len(held))))
        end = min(end, at + draw.choice((1, 2, 4, 16, 256)))
        match draw.randrange(7):
            case 0 if held:
                held[draw.randrange(len(held))] ^= 1 << draw.randrange(8)
            case 1 if held:
                held[draw.randrange(len(held))] = draw.choice((0, 1, 127, 128, 255, draw.randrange(256)))
            case 2:
                del held[at:end]
            case 3:
                held[at:at] = held[at:end]
            case 4:
                held[at:at] = draw.choice(WORDS).encode()
            case 5:
                held[at:end] = draw.choice((b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\xff\xff\xff\x7f", b"\x80"))
            case _:
                del held[draw.randint(0, len(held)) :]
    return bytes(held)


_WORD = re.compile(r"\s+|\w+|.", re.DOTALL)


def of_words(data: bytes, draw: random.Random) -> bytes:
    """Some words of a text put in another's place, taken away, repeated, or made long."""
    words = _WORD.findall(data.decode("utf-8", "replace"))
    for _ in range(draw.choice((1, 1, 2, 3, 6))):
        at = draw.randrange(len(words) + 1)
        match draw.randrange(6):
            case 0 if at < len(words):
                words[at] = draw.choice(WORDS)
            case 1 if at < len(words):
                words[at] = draw.choice(words)
            case 2 if at < len(words):
                del words[at]
            case 3:
                words[at:at] = words[at : at + draw.choice((1, 3, 20))] * draw.choice((1, 2, 40))
            case 4 if at < len(words) and words[at].isdigit():
                words[at] = str(int(words[at][:40]) * draw.choice((-1, 0, 2, 10**9, 10**25)))
            case _:
                words[at:at] = [draw.choice(WORDS)]
    return "".join(words).encode("utf-8", "surrogatepass")


def of_json(data: bytes, draw: random.Random) -> bytes:
    """Some values of a JSON text put in others' places, renamed, taken away, or made deep."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return of_bytes(data, draw)
    return json.dumps(edited(value, draw)).encode("utf-8", "surrogatepass")


def edited(value: Any, draw: random.Random) -> Any:
    """A copy of data with some of its values changed."""
    top = [copy.deepcopy(value)]
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        places = [*_places(top, 0)]
        holder, key = draw.choice(places)
        other, name = draw.choice(places)
        match draw.randrange(9):
            case 0 | 1 | 2:
                holder[key] = copy.deepcopy(draw.choice(VALUES))
            case 3:
                holder[key] = copy.deepcopy(other[name])
            case 4 if holder is not top:
                del holder[key]
            case 5 if isinstance(holder, dict):
                holder[draw.choice((CANARY, "", "self", "x y", "name", *map(str, holder)))] = holder.pop(key)
            case 6 if isinstance(holder, list) and holder is not top:
                holder[key:key] = [holder[key]] * draw.choice((1, 2, 50))
            case 7 if isinstance(holder[key], str):
                holder[key] = of_words(holder[key].encode("utf-8", "surrogatepass"), draw).decode("utf-8", "replace")
            case 8 if isinstance(holder[key], int) and not isinstance(holder[key], bool):
                holder[key] += draw.choice((-1, 1, 1 << 20, 1 << 62, -(1 << 62)))
            case _:
                for _ in range(draw.choice((1, 3, 60))):
                    holder[key] = draw.choice(([holder[key]], {"tuple": [holder[key]]}, ["Add", holder[key], 1]))
    return top[0]


def _places(value: Any, depth: int) -> Any:
    """Each value within ``value``, as what holds it and under which key."""
    if depth > 120:
        return
    for key in [*value] if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key], depth + 1)


def of_lines(data: bytes, draw: random.Random) -> bytes:
    """A line of a text of JSON lines changed as JSON, or lines repeated, taken away and swapped."""
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    match draw.randrange(5):
        case 0 | 1 | 2:
            lines[at] = of_json(lines[at], draw)
        case 3:
            lines[at:at] = [draw.choice(lines)]
        case _:
            del lines[at]
    return b"\n".join(lines)


def within(member: str, mutation: Mutation, inner: str = "") -> Mutation:
    """A mutation of a member of a zip archive; of the member whose name ends so of an archive that is that member."""

    def mutated(data: bytes, draw: random.Random) -> bytes:
        try:
            parts = unzipped(data)
            name = next(n for n in parts if n.endswith(member))
        except Exception:  # whatever a damaged archive makes its reader raise
            return of_bytes(data, draw)
        change = within(inner, mutation) if inner else mutation
        return zipped({**parts, name: change(parts[name], draw)})

    return mutated


def unzipped(data: bytes) -> dict[str, bytes]:
    """The members of a zip archive that are not large."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {i.filename: archive.read(i) for i in archive.infolist() if i.file_size < 1 << 22}


def zipped(parts: Mapping[str, bytes]) -> bytes:
    """A zip archive of these members."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return held.getvalue()


def packed(mutation: Mutation) -> Mutation:
    """A mutation of bytes that zlib packed."""

    def mutated(data: bytes, draw: random.Random) -> bytes:
        try:
            held = zlib.decompress(data)
        except zlib.error:
            return of_bytes(data, draw)
        return zlib.compress(mutation(held, draw), 1)

    return mutated


def one_of(*mutations: Mutation) -> Mutation:
    """One of them, each as often as it is given."""

    def mutated(data: bytes, draw: random.Random) -> bytes:
        return draw.choice(mutations)(data, draw)

    return mutated


def of_seed(seeds: Sequence[bytes], mutation: Mutation, draw: random.Random) -> bytes:
    """A seed with one mutation, seldom with two or with another's end."""
    data = mutation(draw.choice(seeds), draw)
    if draw.random() < 0.1:
        data = mutation(data, draw)
    if draw.random() < 0.02:
        other = draw.choice(seeds)
        data = data[: draw.randint(0, len(data))] + other[draw.randint(0, len(other)) :]
    return data
