"""``python -m keel_bench.releasable v0.2.0``: what keeps a tag from being released, a sentence each."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    [tag] = sys.argv[1:] if arguments is None else arguments
    problems = [*faults(ROOT, tag), *changed_lock()]
    print("\n".join(problems) or f"{tag} can be released.")
    return 1 if problems else 0


def faults(root: Path, tag: str) -> Iterator[str]:
    """What is wrong with the version, the changelog and its fragments in a checkout."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    if tag != f"v{version}":
        yield f"The tag is {tag}, but pyproject.toml has the version {version}."
    first = re.search(r"^## (.*)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    if first is None or not re.fullmatch(rf"{re.escape(version)}, \d{{4}}-\d\d-\d\d", first[1]):
        yield f"The first section of CHANGELOG.md is not that of {version} with its day: run make release."
    for fragment in sorted((root / "changelog.d").glob("*.*.md")):
        yield f"The fragment {fragment.name} is not in CHANGELOG.md: run make release."


def changed_lock() -> list[str]:
    """A sentence if the lock of the opset is not that of the declarations."""
    command = [sys.executable, "-m", "keel.cli", "spec", "lock", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [(done.stdout or done.stderr).strip()] if done.returncode else []


if __name__ == "__main__":
    sys.exit(main())
