"""One case: a defect is planted, `keel minify` reduces the model, and `keel compare` names the operator."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..jobs import Job
from .model_run import FILES, source_root
from .planted import RIGHT
from .planting import OWN, PLANTED, Defect, chance, drawn, stage_of
from .source_mutants import mutated, source_mutants
from .zoo_factories import TRAINING

FACTORIES = "keel_bench.debugging.zoo_factories"
RUN = "keel_bench.debugging.model_run"
SECONDS = 240
"""The seconds that `keel minify` may look for something smaller."""
LONGEST, SCRIPT = 900.0, 400.0
"""The seconds after which a command has failed, and a script."""
DRAWS = 8
"""The most defects that are tried for one case. Most mutants of Keel's source change nothing in a model, and others are
in calls that the model does not need.
"""


def measure(job: Job) -> dict[str, Any]:
    """What came of the case with the number and the seed ``job.along``."""
    seed, number = map(int, job.along.split(":"))
    model = job.model + (TRAINING if job.mode == "training" else "")
    with TemporaryDirectory(prefix="keel-debug-") as folder:
        planted = plant(seed, number, model, Path(folder))
        if planted is None:
            return {"planted": False, "stage": stage_of(number)}
        outcome = results(planted, Path(folder))
        return {"planted": True, "operator": planted.operator, **planted.as_json(), **outcome}


def plant(seed: int, number: int, model: str, folder: Path) -> Defect | None:
    """The defect of a case. None if no defect that was drawn shows in the model."""
    if (stage := stage_of(number)) not in OWN:
        places = answer_of(["places", model], {})
        defects = (drawn(seed, number, model, places, attempt) for attempt in range(DRAWS))
        return next((d for d in defects if how_it_shows(model, d.probe, {})), None)
    random, lines = chance(seed, number, "source"), answer_of(["lines", model], {})
    root = source_root()
    of_stage = [path for path in lines if stage_of_file(path) == stage]
    todo = [(path, m) for path in of_stage for m in source_mutants((root / path).read_text(), {*lines[path]})]
    random.shuffle(todo)
    shutil.copytree(root, folder / "keel", ignore=shutil.ignore_patterns("__pycache__"))
    for path, mutant in todo[:DRAWS]:
        text = (root / path).read_text()
        (folder / "keel" / path).write_text(mutated(text, mutant), encoding="utf-8")
        if kind := how_it_shows(model, "cpp", environment(folder)):
            return Defect(model, stage, "cpp", mutant.sentence, path, kind)
        (folder / "keel" / path).write_text(text, encoding="utf-8")
    return None


def how_it_shows(model: str, backend: str, more: Mapping[str, str]) -> str:
    """How a model fails with a backend; empty if it does not."""
    kind: str = answer_of(["shows", model, backend], more, least={"kind": ""})["kind"]
    return kind


def stage_of_file(path: str) -> str:
    """The stage of Keel that a file belongs to; empty if it belongs to none."""
    return next((stage for stage, globs in FILES.items() if any(Path(path).match(g) for g in globs)), "")


def environment(folder: Path) -> dict[str, str]:
    """The environment of processes that import Keel from a folder, if it has a copy."""
    first = [str(folder)] if (folder / "keel").exists() else []
    return {"PYTHONPATH": os.pathsep.join([*first, *(p for p in sys.path if p)])}


def answer_of(words: Sequence[str], more: Mapping[str, str], least: Any = None) -> Any:
    """The answer of a process that runs the model; ``least`` if it gives none."""
    status, out, _ = command([sys.executable, "-m", RUN, *words], more, LONGEST / 3)
    if status != 0 and least is not None:
        return least
    if status != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {status}: {out[-400:]}")
    return json.loads(out.splitlines()[-1])


def command(words: Sequence[str], more: Mapping[str, str], seconds: float) -> tuple[int, str, float]:
    """The exit status of a command, what it printed, and the seconds that it took. A command that takes too long is
    ended with all that it started, and has the status -1.
    """
    begin = time.monotonic()
    process = subprocess.Popen(
        list(words),
        env={**os.environ, "KEEL_GRAPH_CACHE": "0", **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
        return -1, out, time.monotonic() - begin
    return process.returncode, out, time.monotonic() - begin


def results(defect: Defect, folder: Path) -> dict[str, Any]:
    """What the commands make of a model with a defect."""
    more, out = environment(folder), folder / "minified"
    named = f"{FACTORIES}:{defect.target}", "--backends", defect.backend
    training = ["--training"] if defect.target.endswith(TRAINING) else []
    words = [
        sys.executable,
        "-m",
        "keel.cli",
        "minify",
        *named,
        *training,
        "--out",
        str(out),
        "--seconds",
        str(SECONDS),
    ]
    status, printed, seconds = command(words, more, LONGEST)
    row: dict[str, Any] = {"seconds": round(seconds, 1), "reduced": False}
    if not (out / "report.json").exists():
        row["trouble"] = f"status {status}: {printed[-600:]}"
    else:
        report = json.loads((out / "report.json").read_text())
        row |= {
            "reduced": True,
            "found": report["kind"],
            "blamed": report["stage"],
            "nodes": report["calls"],
            "before": report["before"],
            "lines": report["lines"],
            "operators": report["operators"],
            "trials": report["trials"],
            "graph": report["graph"],
            "outcomes": report["outcomes"],
            "search_seconds": report["seconds"],
            "script": (out / "failing.py").read_text(),
            "with_defect": script_status(out / "failing.py", more),
            "without_defect": script_status(mended(out / "failing.py", defect), {}),
        }
    return row | (compared(named, more) if row.get("found", defect.kind) in ("wrong", "nan") else {})


def mended(script: Path, defect: Defect) -> Path:
    """The script with the same backend without its defect. Without a copy of Keel's source nothing has to change."""
    text = script.read_text().replace(f"from {PLANTED} import ", f"from {PLANTED} import {RIGHT}")
    path = script.with_name("mended.py")
    path.write_text(text, encoding="utf-8")
    return path


def script_status(script: Path, more: Mapping[str, str]) -> int:
    """The exit status of a script; without ``more``, it imports Keel as it is."""
    return command([sys.executable, str(script)], more or environment(script.parent), SCRIPT)[0]


def compared(named: Sequence[str], more: Mapping[str, str]) -> dict[str, Any]:
    """The first operator that `keel compare` names."""
    status, printed, seconds = command([sys.executable, "-m", "keel.cli", "compare", *named, "--json"], more, LONGEST)
    row: dict[str, Any] = {"compare_seconds": round(seconds, 1)}
    try:
        wrong = json.loads(printed[printed.index("{\n") :])["wrong"]
    except ValueError:
        return row | {"named": "", "compare_trouble": f"status {status}: {printed[-400:]}"}
    return row | {"named": wrong[0]["operator"] if wrong else ""}
