"""The pages of the operator set: one for each member, an index by family, and one that searches in a browser."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from keel.documents import claim, listed
from keel.spec import examples, lookup
from keel.spec.excluded import EXCLUSIONS
from keel.spec.lock import lock, name_of, operands, results
from keel.spec.op import Budget, Op
from keel.spec.opset import MEMBERS
from keel.spec.versions import CURRENT
from keel.torch_adapter import operator_named, signature

WIDTH = 120
TEMPLATES = ("op.md", "README.md", "outside.md", "index.html")


def pages(members: Mapping[str, Op] = MEMBERS) -> dict[str, str]:
    """The text of every page, by its path below ``docs/spec``."""
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    folder = files("keel_templates") / "spec"
    made = {name: environment.from_string((folder / f"{name}.jinja").read_text()) for name in TEMPLATES}
    results = {path_of(op): _tidy(made["op.md"].render(_facts(op))) for op in members.values()}
    index_data = _index_data(members)
    return results | {name: _tidy(made[name].render(index_data)) for name in TEMPLATES[1:]}


MAKER = "keel spec docs"


def write(folder: Path, members: Mapping[str, Op] = MEMBERS) -> tuple[int, int]:
    """Writes all pages below ``folder`` and takes away those that it wrote before of members that are gone; how many of
    each.  Raises KeelError[bad-option] for a folder that holds anything and that it did not make.
    """
    result = pages(members)
    gone = [folder / path for path in claim(folder, MAKER) - result.keys() if _is_page(path)]
    there = [page for page in gone if page.is_file()]
    for page in there:
        page.unlink()
    for path, text in result.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    listed(folder, MAKER, result)
    return len(result), len(there)


def _is_page(path: str) -> bool:
    """Whether a path of the list is one that a page of a member has, and leads nowhere else."""
    return re.fullmatch(r"[a-z0-9-]+/[A-Za-z0-9_]+\.md", path) is not None


def _normal(op: Op) -> str | None:
    """What holds of the operands of a call in normal form."""
    many = len(op.operands) > 1
    parts = [
        f"{'have' if many else 'has'} the dtype `{op.compute.text}`" if op.compute is not None else "",
        "are broadcast to one another" if many else "",
    ]
    conditions = " and ".join(p for p in parts if p)
    return f"In normal form {', '.join(operands(op))} {conditions}." if op.operands and conditions else None


def path_of(op: Op) -> str:
    return f"{slug(op.family)}/{op.name}.md"


def slug(family: str) -> str:
    return family.lower().replace(" ", "-").replace(",", "")


def wrap(text: str, indent: str = "") -> str:
    """A paragraph in lines of the width that pages have."""
    return textwrap.fill(
        " ".join(text.split()).replace("``", "`"),
        WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _tidy(text: str) -> str:
    """No more than one empty line anywhere, none at the end."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip() or (lines and lines[-1]):
            lines.append(line.rstrip())
    return "\n".join(lines).rstrip() + "\n"


def _facts(op: Op) -> dict[str, Any]:
    shown = examples.example(op)
    source = _source(op.decompose) if op.decompose is not None else None
    return {
        "op": op,
        "wrap": wrap,
        "family": slug(op.family),
        "doc": op.doc,
        "clauses": [(label, clause.text) for label, clause in op.cited],
        "overloads": [(name, _signature(name)) for name in op.overloads],
        "results": results(op),
        "dtypes": [name_of(d) for d in op.dtypes],
        "budget": _budget(op),
        "normal": _normal(op),
        "example": shown,
        "output": examples.output(shown) if shown is not None else None,
        "source": source and source[1],
        "file": source and source[0],
    }


def _signature(name: str) -> str | None:
    result = operator_named(name)
    return None if result is None else (signature(result) or "").replace("|", "\\|") or None


def _budget(op: Op) -> list[tuple[str, list[str]]]:
    """The errors that are allowed, each with the dtypes that it holds for."""
    results: dict[str, list[str]] = {}
    for dtype, budget in op.budget.items():
        results.setdefault(_error(budget), []).append(name_of(dtype))
    return list(results.items())


def _error(budget: Budget) -> str:
    match budget:
        case Budget(ulps=0, times=None):
            return "none: the result is exact"
        case Budget(ulps=float() | int() as ulps, times=None):
            return f"at most {ulps:g} ulps of the exact result"
        case Budget(ulps=None, times=float() | int() as times):
            return f"at most {times:g} times eager PyTorch's error against float64"
        case Budget(ulps=None, times=None):
            return "not bounded"
    return f"at most {budget.ulps:g} ulps, or {budget.times:g} times eager PyTorch's error against float64"


def _source(function: Callable[..., Any]) -> tuple[str, str] | None:
    """The file and the text of a decomposition, without its decorators; None where there is no text."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    file = inspect.getsourcefile(function)
    if file is None:
        return None
    root = Path(__file__).parents[2]
    text = textwrap.dedent(inspect.getsource(function))
    start = text.find("def ")
    shown = Path(file)
    return (
        f"sdk/{shown.relative_to(root).as_posix()}" if shown.is_relative_to(root) else shown.name,
        text[max(start, 0) :].rstrip(),
    )


def _index_data(members: Mapping[str, Op]) -> dict[str, Any]:
    counted = lookup.families(members)
    shown = []
    for c in counted:
        of = sorted((op for op in members.values() if op.family == c.family), key=lambda op: op.name)
        shown.append(
            {
                "counted": c,
                "slug": slug(c.family),
                "members": [
                    {"name": op.name, "kind": op.kind, "meaning": sentence(op.doc).replace("|", "\\|")} for op in of
                ],
            }
        )
    kinds = {kind: sum(op.kind == kind for op in members.values()) for kind in ("primitive", "composite", "opaque")}
    words = f"{kinds['primitive']} primitives, {kinds['composite']} composites and {kinds['opaque']} opaque operators"
    fields = ("kind", "family", "overloads", "clauses", "results", "dtypes", "requires", "tags", "reason")
    locked = lock(members.values())["members"]
    data = [
        {
            "name": name,
            "page": path_of(members[name]),
            "doc": sentence(members[name].doc),
            **{k: m[k] for k in fields},
        }
        for name, m in locked.items()
    ]
    return {
        "version": CURRENT,
        "wrap": wrap,
        "exclusions": _exclusions(),
        "families": shown,
        "total": len(members),
        "kinds": words,
        "data": _embedded(data),
    }


def _embedded(data: Any) -> str:
    """Data in a script of a page, a line for each member."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace('},{"name"', '},\n{"name"')


def _exclusions() -> list[dict[str, str]]:
    """What is left out, in words; dtypes that only some PyTorch has are left to it."""

    def code(names: Iterable[object]) -> str:
        return ", ".join(f"`{str(n).removeprefix('torch.').removesuffix('.*')}`" for n in names)

    return [
        {
            "name": e.name,
            "reason": e.reason,
            "do": e.do,
            "operators": code(e.operators),
            "layouts": code(e.layouts),
            "dtypes": code(e.dtypes),
        }
        for e in EXCLUSIONS
    ]


def sentence(doc: str) -> str:
    """The first paragraph of a description, in one line."""
    return " ".join(doc.strip().partition("\n\n")[0].split())
