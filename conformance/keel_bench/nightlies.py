"""``python -m keel_bench.nightlies``: names the first nightly build of PyTorch with which a command fails.

It needs neither PyTorch nor Keel, for it runs the command in a separate venv for each nightly that it tries. Nightlies
are newer than the releases that Keel supports, so pip installs Keel itself without its requirements.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

INDEX = "https://download.pytorch.org/whl/nightly/cpu"
EXTRAS = ("test", "bench")
ROOT = Path(__file__).parents[2]
UNKNOWN = 125
"""The exit status of a command that cannot judge a nightly, as in ``git bisect run``."""

Verdict = Callable[[str], bool | None]
"""Whether a nightly is good; None if it cannot be judged."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m keel_bench.nightlies", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--since", type=date.fromisoformat, required=True, help="a day whose nightly is good")
    parser.add_argument("--until", type=date.fromisoformat, default=date.today(), help="a day whose nightly is bad")
    parser.add_argument("--install", type=Path, help="only install the newest nightly into this venv")
    parser.add_argument("command", nargs="*", help="what to run, with the venv's bin on PATH; after --")
    options = parser.parse_args(arguments)
    versions = between(listed(), options.since, options.until)
    if not versions:
        print(f"There is no nightly between {options.since} and {options.until}.")
        return 1
    if options.install:
        install(versions[-1], options.install)
        print(f"{versions[-1]} is in {options.install}.")
        return 0
    if not options.command:
        parser.error("Name the command to run after --.")
    sentence = note(versions, lambda version: judged(version, options.command))
    print(sentence)
    return 0


# -- the search ----------------------------------------------------------------------------------------------


def note(versions: Sequence[str], verdict: Verdict) -> str:
    """A sentence that names the first bad version. ``versions`` are in order, and go from good to bad once."""
    if verdict(versions[0]) is not True:
        return f"{versions[0]}, the oldest one, is not good. Start with an earlier day."
    if verdict(versions[-1]) is not False:
        return f"{versions[-1]}, the newest one, is not bad."
    good, bad = first_bad(versions, verdict)
    skipped = versions[versions.index(good) + 1 : versions.index(bad)]
    unknown = f" {', '.join(skipped)} could not be judged." if skipped else ""
    return f"{bad} is the first bad nightly; {good} is good.{unknown}"


def first_bad(versions: Sequence[str], verdict: Verdict) -> tuple[str, str]:
    """The last good version and the first bad one after it. The first of ``versions`` is good, the last one bad.

    Only versions that cannot be judged may be between the two.
    """
    low, high, unknown = 0, len(versions) - 1, set[int]()
    while candidates := [i for i in range(low + 1, high) if i not in unknown]:
        middle = min(candidates, key=lambda i: abs(2 * i - low - high))
        match verdict(versions[middle]):
            case True:
                low = middle
            case False:
                high = middle
            case None:
                unknown.add(middle)
    return versions[low], versions[high]


def between(versions: Iterable[str], since: date, until: date) -> list[str]:
    """The nightlies of these days, oldest first."""
    days = {version: match[1] for version in versions if (match := re.search(r"\.dev(\d{8})", version))}
    chosen = [v for v, day in days.items() if f"{since:%Y%m%d}" <= day <= f"{until:%Y%m%d}"]
    return sorted(chosen, key=lambda version: (days[version], version))


# -- pip and venvs -------------------------------------------------------------------------------------------


def listed() -> list[str]:
    """The versions of torch that the index of nightlies has. Raises CalledProcessError."""
    command = [sys.executable, "-m", "pip", "index", "versions", "--pre", "torch", "--index-url", INDEX]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.findall(r"[\w.+]+\.dev\d{8}[\w.+]*", output.partition("Available versions:")[2])


def install(version: str, folder: Path) -> None:
    """Makes a venv with that version of torch, Keel and what its tests need. Raises CalledProcessError."""
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--pre", f"torch=={version}", "--index-url", INDEX], check=True)
    subprocess.run([*pip, *requirements(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True)


def requirements(project: dict[str, object]) -> list[str]:
    """What Keel and its ``EXTRAS`` require but for torch, with the extras of Keel itself resolved."""
    extras, results = project["optional-dependencies"], dict[str, None]()
    assert isinstance(extras, dict) and isinstance(project["dependencies"], list)
    pending = [*project["dependencies"], f"{project['name']}[{','.join(EXTRAS)}]"]
    while pending:
        requirement = pending.pop(0)
        if own := re.fullmatch(rf"{project['name']}\[(.*)\]", requirement):
            pending += [r for extra in own[1].split(",") for r in extras[extra]]
        elif not re.match(r"torch\b(?!-)", requirement):
            results[requirement] = None
    return [*results]


def judged(version: str, command: Sequence[str]) -> bool | None:
    """Runs the command with a nightly; None if the nightly cannot be installed, or the command exits with 125."""
    with TemporaryDirectory(prefix="nightly-") as name:
        folder = Path(name) / "venv"
        try:
            install(version, folder)
        except subprocess.CalledProcessError as error:
            print(f"{version}: {error}", flush=True)
            return None
        path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        executable = shutil.which(command[0], path=path) or command[0]
        status = subprocess.run([executable, *command[1:]], env={**os.environ, "PATH": path}, check=False).returncode
    print(f"{version}: exit status {status}", flush=True)
    return None if status == UNKNOWN else status == 0


if __name__ == "__main__":
    sys.exit(main())
