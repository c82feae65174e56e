"""Writes what Sphinx makes the site of: the pages of ``docs``, and pages made from data.

``python docs/site/pages.py build/pages``; ``make docs`` does the rest.
"""

from __future__ import annotations

import posixpath
import re
import sys
from importlib import import_module
from pathlib import Path

import plots

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = "https://github.com/torch-keel/torch-keel"
LINK = re.compile(r"(?<=\]\()([^)#\s]+)((?:#[^)\s]*)?)(?=\))")
INNER = ("plugin", "loops", "opset", "testing", "cost", "cache", "launcher", "serialize")
ROOMS = ("keel", *(f"keel.{room}" for room in INNER))
"""The public rooms, as docs/architecture.md lists them."""

NAVIGATION: dict[str, tuple[str, ...]] = {
    "Start": ("tutorial/index", "tour", "how/index"),
    "Reference": ("reference/index", "spec/index", "errors/index"),
    "Conformance": (
        "conformance/harness",
        "conformance/oracles",
        "conformance/contract",
        "conformance/reports",
        "findings",
    ),
    "Design": ("architecture", "adr/index", "benchmarks/index", "maintainers/index", "changelog"),
}
"""The captions of the sidebar, and their pages."""
FOLDERS = ("how", "benchmarks", "maintainers", "reference")
"""Folders whose index lists its pages in the sidebar; pages of the others are only linked."""


def main(target: Path) -> None:
    extra = target.with_name("extra")
    pages = {renamed(path): relinked(path) for path in sorted(DOCS.rglob("*.md"))}
    pages |= reference() | plots.pages() | operators(extra)
    pages["changelog.md"] = relinked(ROOT / "CHANGELOG.md")
    in_sidebar = {page for listed in NAVIGATION.values() for page in listed}
    for path in pages:
        folder, name = posixpath.split(path.removesuffix(".md"))
        if path.endswith(".md") and folder in FOLDERS and name != "index":
            in_sidebar.add(path.removesuffix(".md"))
    for folder in FOLDERS:
        names = sorted(page for page in in_sidebar if page.startswith(f"{folder}/") and not page.endswith("/index"))
        pages[f"{folder}/index.md"] += contents("", [name.removeprefix(f"{folder}/") for name in names])
    pages["spec/index.md"] += contents("", ["search", "stability", "outside"])
    in_sidebar |= {"spec/search", "spec/stability", "spec/outside", "index"}
    pages["index.md"] += "".join(contents(caption, listed) for caption, listed in NAVIGATION.items())
    for path, text in pages.items():
        orphan = path.endswith(".md") and path.removesuffix(".md") not in in_sidebar
        write(target / path, "---\norphan: true\n---\n\n" + text if orphan else text)
    pictures = [path.relative_to(DOCS) for path in DOCS.rglob("*.svg")]
    for picture in pictures:
        write(target / picture, (DOCS / picture).read_text())
    for file in {path for path in target.rglob("*") if path.is_file()} - {target / p for p in (*pages, *pictures)}:
        file.unlink()


def write(path: Path, text: str) -> None:
    """Writes the file if its text differs, so that Sphinx reads only pages that changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


def contents(caption: str, names: list[str] | tuple[str, ...]) -> str:
    """A hidden table of contents, which the sidebar shows."""
    title = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n{title}\n" + "\n".join(names) + "\n```\n"


# -- the pages of docs ---------------------------------------------------------------------------------------


def renamed(path: Path) -> str:
    """A folder's README is its index."""
    return re.sub(r"README\.md$", "index.md", str(path.relative_to(DOCS)))


def relinked(page: Path) -> str:
    """The page's text. Links that leave ``docs``, and those to folders and other files, lead to the repository."""

    def target(found: re.Match[str]) -> str:
        link, anchor = found.groups()
        if ":" in link:
            return found[0]
        path = (page.parent / link).resolve()
        if path == ROOT / "CHANGELOG.md":
            return posixpath.relpath("changelog.md", str(page.parent.relative_to(DOCS))) + anchor
        if path.is_relative_to(DOCS) and path.suffix in (".md", ".svg"):
            start = page.parent.relative_to(DOCS) if page.is_relative_to(DOCS) else "."
            return posixpath.relpath(renamed(path), str(start)) + anchor
        return f"{SOURCE}/{'tree' if path.is_dir() else 'blob'}/main/{path.relative_to(ROOT)}{anchor}"

    parts = re.split(r"(^```.*?^```$)", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(target, part) for part in parts)


# -- pages made from data ------------------------------------------------------------------------------------


def reference() -> dict[str, str]:
    """A page for each public room, with an entry for each public name."""
    pages, rows, homes = {}, [], dict[str, str]()
    for name in reversed(ROOMS):  # keel is last: it repeats names of the others
        module = import_module(name)
        first = " ".join((module.__doc__ or "").partition("\n\n")[0].split())
        new = ", ".join(sorted({*module.__all__} - homes.keys()))
        also = ", ".join(f"[`{known}`]({homes[known]}.md)" for known in sorted({*module.__all__} & homes.keys()))
        homes |= dict.fromkeys(module.__all__, name)
        text = f"# {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members: {new}\n```\n"
        pages[f"reference/{name}.md"] = text + (f"\nAlso here: {also}.\n" if also else "")
        rows.insert(0, f"| [`{name}`]({name}.md) | {first} | {len(module.__all__)} |")
    listed = "\n".join(["| room | what it has | names |", "|---|---|---|", *rows])
    return {"reference/index.md": f"# Reference\n\nThe public names of Keel, by room.\n\n{listed}\n", **pages}


def operators(extra: Path) -> dict[str, str]:
    """The page that searches the opset, as a file of its own and within a page of the site."""
    text = (DOCS / "spec" / "index.html").read_text()
    text = text.replace('"README.md"', '"spec/index.html"').replace('"stability.md"', '"spec/stability.html"')
    text = text.replace(
        "link.href = m.page;", 'link.href = "spec/" + m.page.replace(/md$/, "html"); link.target = "_top";'
    )
    write(extra / "operators.html", text)
    frame = '<iframe src="../operators.html" title="Search the operators" class="search"></iframe>'
    return {"spec/search.md": f"# Search the operators\n\n{frame}\n"}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
