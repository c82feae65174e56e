"""Plain English, as docs/maintainers/style.md asks for it: how often prose breaks a rule, per room, as a ceiling that
may only fall.

Prose is every docstring, comment and message of the code, and every document that is written by hand.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from .source_files import LEXEME, ROOT, short, walk

CODE = ("sdk", "reference_backends", "conformance", "templates", "docs")
"""Folders whose Python files are read, those of tests too."""
UNREAD = ("docs/maintainers/style.md", "sdk/tests/test_english.py")
"""Files that quote what they forbid."""
GENERATED = "docs/spec/.keel-made"
"""The list of the pages that ``keel spec docs`` writes; their prose is counted where it is declared."""
FORMULA = re.compile(r"\s*(\w+ = |kernel \w+\()")
"""The beginning of a string that is a program and not prose."""

_BRITISH = (
    r"analys(?=e[dr]?\b|ing) artefact behaviour cancell(?=ed|ing) canonicalis capitalis catalogue centr(?=e[ds]?\b|ing)"
    r" colour discretis emphasis(?=e|ing) equalis factoris favour finalis formalis generalis grey(?=\b) honour"
    r" initialis judgement labell(?=ed|ing) linearis localis materialis maximis memois minimis modell(?=ed|ing)"
    r" neighbour normalis optimis(?!t) organis(?!m) parallelis penalis prioritis quantis randomis realis(?!t) recognis"
    r" serialis specialis standardis summaris symbolis synchronis travell(?=ed|er|ing) utilis vectoris visualis"
)
BRITISH = r"(?i)\b(?:de|re|un)?-?(?:" + "|".join(_BRITISH.split()) + ")"
OLD_NAMES = {"sdk/keel/serialise.py": "the former name of keel.serialize, for one more release"}
"""Files with a British name, and why."""
_PERSONS = ("anybody", "anyone", "engineer", "one", "people", "reader", "somebody", "someone", "user", "vendor")
RULES: Mapping[str, str] = {
    "a relative clause without a head: who computes": "".join(rf"(?<!\b{person} )" for person in _PERSONS)
    + r"\b[Ww]ho(?:ever)? (?!is\b)\w+s\b",
    "a relative clause without a head: what computes nothing": r"\b[Ww]hat \w+s (?:nothing|none|no \w+)\b",
    "of before what it belongs to: Of a view all": r"(?:^|[.:;] )Of (?:an?|all|each|every|it|no|the|them|those|what"
    r"|which)\b",
    "of which no": r"\bof (?:which|whom|what) (?:none|nothing|no)\b|\bof (?:those|such) of which\b",
    "is none": r"\b(?:is|are|was|were) none\b",
    "is no file": r"(?<![Hh]ere )\b(?:is|are) no"
    r" (?!better|fewer|less|longer|more|other|reason|slower|such|use|way|worse)[`a-z]+",
    "has not, knows not": r"\b(?:has|have|had) not(?=[.,;:)])|\b(?:gives?|knows?|needs?|reads?|says?|takes?) not\b",
    "anew, lest, upon": r"\b(?:anew|lest|hereof|save for|thereof|upon|wherein|whereof)\b",
    "so many for a number": r"\b[Ss]o many\b",
    "such as are": r"\bsuch as (?:are|is)\b",
    "hears of, is told, tells nothing": r"\b(?:hears? of|heard of|(?:is|are) told|(?:tells?) nothing|nothing tells)\b",
    "as it is found, one and the same": r"\bas it (?:is|was) found\b|\bone and the same\b|\bthe one or the other\b",
    "a British spelling": BRITISH,
    "a sentence of more than 45 words": r"(?<![^\s.:;!?|])(?:[^\s.:;!?|]+ ){45}",
}
"""A name for each rule, and the pattern of what breaks it."""
PATTERNS = {rule: re.compile(pattern, re.MULTILINE) for rule, pattern in RULES.items()}

CEILINGS = {
    "conformance": 0,
    "docs": 0,
    "reference_backends": 0,
    "sdk/keel": 0,
    "sdk/keel/spec": 0,
    "templates": 0,
    "tests": 0,
    "the root": 0,
}
"""How often each room breaks the rules. A change that takes some away lowers the ceiling with them."""


# -- prose ---------------------------------------------------------------------------------------------------


def files() -> list[Path]:
    generated = {ROOT / "docs" / "spec" / line for line in (ROOT / GENERATED).read_text().splitlines()[1:]}
    code = (path for folder in CODE for path in (ROOT / folder).rglob("*.py"))
    pages = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    return [path for path in sorted({*code, *pages} - generated) if short(path) not in UNREAD]


def of_code(text: str) -> Iterator[str]:
    """The comments of Python, and every string that has words in it."""
    yield from comments(text)
    for string in strings(ast.parse(text)):
        if len(string.split()) > 1 and not FORMULA.match(string):
            yield from re.split(r"\n\s*\n", string)


def comments(text: str) -> Iterator[str]:
    """A comment goes on in the lines below that hold nothing but comments."""
    run: list[str] = []
    last, line, start = 0, 1, 0
    for lexeme in LEXEME.finditer(text):
        if lexeme[0].startswith("#"):
            line, start = line + text.count("\n", start, lexeme.start()), lexeme.start()
            beside_code = bool(text[text.rfind("\n", 0, start) + 1 : start].strip())
            if line != last + 1 or beside_code:
                yield " ".join(run)
                run = []
            run.append(lexeme[0].lstrip("# "))
            last = line
    yield " ".join(run)


def strings(program: ast.AST) -> Iterator[str]:
    """The strings of a program.  An f-string is one string, with code in place of its values."""
    parts = set[ast.AST]()  # of f-strings
    for node in walk(program):  # an f-string comes before its parts
        match node:
            case ast.JoinedStr():
                parts.update(node.values)
                if node not in parts:
                    yield "".join(str(part.value) if isinstance(part, ast.Constant) else "`x`" for part in node.values)
            case ast.FormattedValue(format_spec=ast.JoinedStr() as format_spec):
                parts.add(format_spec)
            case ast.Constant(value=str(string)) if node not in parts:
                yield string


def of_page(text: str) -> Iterator[str]:
    """The paragraphs, list items and cells of Markdown, without its code and where its links lead."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    yield from re.split(r"(?m)\n\s*\n|^\s*[*-] |^\s*\d+\. |\||^#+ ", text)


def prose(path: Path) -> Iterator[str]:
    """What a file says, a paragraph at a time and on one line; what stands in backquotes is code."""
    text = path.read_text()
    for paragraph in of_page(text) if path.suffix == ".md" else of_code(text):
        yield " ".join(re.sub(r"(`+)[^`]+\1", "`x`", paragraph).split())


def broken(paragraphs: str) -> list[tuple[str, str]]:
    """The rules that paragraphs of one line each break, with where."""
    return [(rule, found[0]) for rule, pattern in PATTERNS.items() for found in pattern.finditer(paragraphs)]


def identifiers(text: str) -> set[str]:
    """The names and keywords of Python."""
    return {*re.findall(r"[^\W\d]\w*", LEXEME.sub(" ", text))}


# -- the figures ---------------------------------------------------------------------------------------------


def room_of(path: Path) -> str:
    """The longest room in ``CEILINGS`` that the file is in; the root has documents alone."""
    if "tests" in path.parts:
        return "tests"
    name = short(path)
    return max((room for room in CEILINGS if name.startswith(f"{room}/")), key=len, default="the root")


def test_the_english_of_the_figures_gets_no_worse() -> None:
    found = [(path, rule, where) for path in files() for rule, where in broken("\n".join(prose(path)))]
    rooms, rules = Counter(room_of(path) for path, _, _ in found), Counter(rule for _, rule, _ in found)
    for room, count in rooms.most_common():
        print(f"{count:6}  broken rules of English in {room}")
    for rule, count in rules.most_common():
        print(f"{count:6}  times {rule}")
    risen = {room for room, count in rooms.items() if count > CEILINGS.get(room, 0)}
    listed = [f"{short(path)}: {rule}: {where}" for path, rule, where in found if room_of(path) in risen]
    assert not risen, "\n".join(listed)


def test_names_of_files_and_identifiers_are_american() -> None:
    @cache
    def british(name: str) -> bool:
        return bool(re.search(BRITISH, re.sub(r"[^a-zA-Z]+|(?<=[a-z])(?=[A-Z])", " ", name)))

    paths = [path for path in files() if path.suffix == ".py"]
    names = {f"{short(path)}: {name}" for path in paths for name in identifiers(path.read_text()) if british(name)}
    assert {short(path) for path in paths if british(short(path))} == {*OLD_NAMES}
    assert not names


# -- what counts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("who computes", "Cases whose right results who computes nothing would have."),
        ("what computes nothing", "It takes out what computes nothing."),
        ("Of a view", "A view is free. Of a view all that counts is its base."),
        ("of which no", "Ops of which no rule is known."),
        ("is none", "Raises KeyError if there is none."),
        ("is no file", "The path is no file."),
        ("is no file", "The path `x` is no `x`."),
        ("has not", "It prints what the other has not."),
        ("anew", "The plan is drawn anew."),
        ("so many", "It stops after so many rounds."),
        ("such as are", "Backends such as are right in other ways."),
        ("hears of", "A listener hears of it."),
        ("as it is found", "Memory is read as it is found."),
        ("British", "The behaviour of a normalisation."),
        ("45 words", "And " * 50 + "so on."),
    ],
)
def test_each_rule_is_recognized(rule: str, sentence: str) -> None:
    found = [name for name, _ in broken(sentence)]
    assert any(rule in name for name in found) and len({*found}) == 1


@pytest.mark.parametrize(
    "sentence",
    [
        "A backend that computes nothing fails.",
        "There is no file, and it is no longer needed.",
        "The user who asks for it gets None. It has not been read.",
        "An optimistic organism emphasizes realistic analyses.",
        "Kernels such as matmul.",
    ],
)
def test_plain_english_passes(sentence: str) -> None:
    assert broken(sentence) == []


def test_code_has_its_comments_and_messages_read(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text('"""Doc\nstring."""\nx = 1  # why it\n# is\ny = f"a message of {x} words, `anew`"\nz = "word"\n')
    assert {text for text in prose(path) if text} == {"why it is", "Doc string.", "a message of `x` words, `x`"}


@pytest.mark.slow
def test_the_comments_are_those_that_tokenize_finds() -> None:
    for path in files():
        if path.suffix == ".py":
            tokens = tokenize.generate_tokens(io.StringIO(text := path.read_text()).readline)
            found = [lexeme for lexeme in LEXEME.findall(text) if lexeme.startswith("#")]
            assert found == [token.string for token in tokens if token.type == tokenize.COMMENT], short(path)


def test_pages_are_read_without_code_and_links(tmp_path: Path) -> None:
    path = tmp_path / "p.md"
    path.write_text("# Title\n\nSee [this](anew.md), `anew`.\n\n```\nanew\n```\n\n* one\n  item\n* two\n")
    assert [text for text in prose(path) if text] == ["Title", "See [this], `x`.", "one item", "two"]
