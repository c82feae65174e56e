"""Packages of the zoo's models: in another process and in the C++ runtime, results are those of the compiled model.

Each model is exported twice: with the sizes of its example, and with the sizes free in which two examples differ. One
process packages it and calls what ``compile_exported`` makes of it. Another one loads the package. A program without
Python runs it by the C++ runtime.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import keel
from keel_conformance.report import Criterion, join_names
from keel_conformance.workers.pool import Outcome, run_all
from keel_conformance.workers.spawn import fresh

from ..jobs import Job, Selection, failed, within
from ..models import model_zoo
from .packaged_call import CASE, DYNAMIC, PACKAGE, STATIC, PackagedCall, bits, work

PART = "packages"
TIME_LIMIT = 900.0
"""Seconds after which a process has failed."""
LAST_LINES = 8  # of what a process printed before it failed
FEWEST = 60
"""Models that have to come through."""
REPEATS = 30


AOTI_PART = "packages-aoti"
"""The part that compares packages with those of AOTInductor."""
BESIDE_AOTI = ("bert", "gpt2", "vit", "resnet18", "mobilenetv3")
KEEL_PROCESSES, AOTI_PROCESSES = ("package", "load"), ("aoti_package", "aoti_load")


def aoti_jobs(chosen: Selection) -> list[Job]:
    """Some models with static sizes."""
    models = [model for model in chosen.models if model in BESIDE_AOTI]
    return [chosen.job(AOTI_PART, m, "inference", along=STATIC, scale="tiny", rounds=1) for m in models]


def jobs(chosen: Selection) -> list[Job]:
    """Each model with static and with dynamic sizes."""
    return [
        chosen.job(PART, model, "inference", along=sizes, scale="tiny", rounds=1)
        for model in chosen.models
        for sizes in (STATIC, DYNAMIC)
    ]


def programs() -> tuple[str, ...]:
    """The names of the zoo's models."""
    return model_zoo.NAMES


def measure(job: Job) -> dict[str, Any]:
    """The figures of each process. Raises RuntimeError if one fails."""
    with TemporaryDirectory(prefix="keel-bench-") as folder:
        at, names = Path(folder), (*KEEL_PROCESSES, *(AOTI_PROCESSES if job.part == AOTI_PART else ()))
        todo = [PackagedCall(n, job.model, job.along, job.compiler, at, job.threads, job.device) for n in names]
        rows = {}
        for process, outcome in run_all(todo, fresh(work, environment), time_limit=TIME_LIMIT, last_lines=LAST_LINES):
            if outcome.row is None and process.name not in AOTI_PROCESSES:
                raise RuntimeError(f"The process {process.name} failed. {outcome.failure}")
            rows[process.name] = outcome.row or {"failure": outcome.failure}
        if rows["load"]["runtime"] is None:
            rows["runtime"] = run_without_python(at, job.threads, job.device)
        return rows


def environment(process: PackagedCall, folder: Path) -> dict[str, str]:
    """The environment of a process, with a cache that has nothing in it for the one that loads."""
    own = {name: value for name, value in os.environ.items() if name != "KEEL_DUMP"}
    cache = process.folder / f"cache-{process.name}"
    return {**own, "KEEL_CACHE_DIR": str(cache), "OMP_NUM_THREADS": str(process.threads), "HF_HUB_OFFLINE": "1"}


# -- the C++ runtime ---------------------------------------------------------------------------------------------------


def write_program(path: Path) -> None:
    """Writes the program that runs packages, which is compiled once per machine."""
    main, sources = Path(__file__).with_name("run_package.cpp"), keel.runtime_sources()
    files = [main, *sorted(sources.glob("*.cpp"))]
    texts = [each.read_text() for each in (*files, *sorted(sources.glob("*.h")))]

    def make() -> bytes:
        with TemporaryDirectory() as folder:
            made = Path(folder, "run_package")
            command = [
                "g++",
                "-std=c++17",
                "-O2",
                f"-I{sources}",
                "-o",
                str(made),
                *map(str, files),
                "-ldl",
                "-lpthread",
            ]
            subprocess.run(command, check=True, capture_output=True, text=True)
            return made.read_bytes()

    path.write_bytes(keel.cache.Cache("bench").get_or_make([*texts, keel.cache.compiler_fingerprint("g++")], make))
    path.chmod(0o700)


def run_without_python(folder: Path, threads: int, device: str) -> dict[str, Any]:
    """The figures of the C++ runtime, and the results that differ from those of the compiled model."""
    run = folder / "run_package"
    write_program(run)
    libtorch = Path(torch.__file__).parent / "lib"
    command = [*map(str, (run, folder / PACKAGE, folder, REPEATS, threads, libtorch)), device]
    own = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=own, timeout=TIME_LIMIT, check=False)
    if done.returncode != 0:
        return {"failure": (done.stderr or f"It ended with {done.returncode}.").strip()}
    wrong = []
    for k, results in enumerate(torch.load(folder / CASE, weights_only=False)["results"]):
        for i, value in enumerate(results):
            path = folder / f"out_{k}_{i}.bin"
            want = None if value is None else bits(value if isinstance(value, torch.Tensor) else torch.tensor(value))
            if (path.read_bytes() if path.exists() else None) != want:
                wrong.append(f"call {k}, result {i}")
    return {**json.loads(done.stdout), "wrong": wrong}


# -- bars --------------------------------------------------------------------------------------------------------------


def bars(results: Mapping[Job, Outcome]) -> Iterator[Criterion]:
    """What came through, bit for bit; and the time and the memory of a call without Python."""
    done = {job: outcome.row for job, outcome in results.items() if outcome.row is not None}
    for job, outcome in results.items():
        if outcome.row is None:
            yield failed(job, outcome, "it runs")
    if not done:
        return
    for sizes in (STATIC, DYNAMIC):
        rows = {job.model: row for job, row in done.items() if job.along == sizes}
        if rows:
            yield from came_through(sizes, rows)
    runs = {job: row for job, row in done.items() if "call_us" in row.get("runtime", {})}
    if runs:
        times = [row["runtime"]["call_us"] / row["load"]["call_us"] for row in runs.values()]
        yield Criterion("packages: time of a call / Python's, median", statistics.median(times), "shown", None)
        memory = [row["runtime"]["peak_kib"] / row["load"]["peak_kib"] for row in runs.values()]
        yield within("packages: peak memory / Python's, worst", max(memory), 1.0)
    loads = sorted(row["load"]["load_s"] for row in done.values())
    yield Criterion("packages: seconds to load, median", statistics.median(loads), "shown", None)


def aoti_bars(results: Mapping[Job, Outcome]) -> Iterator[Criterion]:
    """What loading, calling and storing a package takes, in Python, without it, and by AOTInductor."""
    for job, outcome in results.items():
        if (row := outcome.row) is None:
            yield failed(job, outcome, "it runs")
            continue
        ways = {"Python": row["load"], "C++": row.get("runtime", {}), "AOTInductor": row["aoti_load"]}
        for key, unit, times in (("load_s", "ms to load", 1e3), ("call_us", "ms of a call", 1e-3)):
            figures = {name: way[key] * times for name, way in ways.items() if key in way}
            yield shown(f"{job.title}: {unit}", figures)
        firsts = {name: way["first_s"][0] * 1e3 for name, way in ways.items() if "first_s" in way}
        yield shown(f"{job.title}: ms of the first call", firsts)
        made = {"Keel": row["package"], "AOTInductor": row["aoti_package"]}
        for key, unit, times in (("bytes", "MiB", 2**-20), ("package_s", "s to package", 1)):
            yield shown(f"{job.title}: {unit}", {name: by[key] * times for name, by in made.items() if key in by})
        for way in (row["aoti_package"], row["aoti_load"]):
            if "failure" in way:
                yield Criterion(f"{job.title}: AOTInductor", None, "shown", None, way["failure"])
    faults = {job.model: faults_of(o.row.get("runtime", {})) for job, o in results.items() if o.row is not None}
    wrong = {model: each for model, each in faults.items() if each}
    if faults:
        note = join_names([f"{model}: {each[0]}" for model, each in wrong.items()], 4)
        yield Criterion(f"{AOTI_PART}: models that differ without Python", len(wrong), "0", not wrong, note)


def shown(name: str, figures: Mapping[str, float]) -> Criterion:
    """A row with the first figure, and all of them in words."""
    note = ", ".join(f"{way} {figure:.4g}" for way, figure in figures.items())
    return Criterion(name, next(iter(figures.values())), "shown", None, note)


def faults_of(runtime: Mapping[str, Any]) -> list[str]:
    """What is wrong with a run of the C++ runtime."""
    return [runtime["failure"]] if "failure" in runtime else runtime.get("wrong", ["It did not run."])


def came_through(sizes: str, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[Criterion]:
    """The models with these sizes whose results are the same, in another process and without Python."""
    wrong = {model: row["load"]["wrong"] for model, row in rows.items() if row["load"]["wrong"]}
    good = len(rows) - len(wrong)
    yield at_least(f"packages, {sizes}: models in another process, bit for bit", good, wrong)
    refused = {model: [row["load"]["runtime"]] for model, row in rows.items() if row["load"]["runtime"] is not None}
    ran = {model: row["runtime"] for model, row in rows.items() if "runtime" in row}
    faults = {model: faults_of(row) for model, row in ran.items()}
    wrong = {model: each for model, each in faults.items() if each}
    yield at_least(f"packages, {sizes}: models without Python, bit for bit", len(ran) - len(wrong), wrong)
    note = join_names([f"{model}: {why[0]}" for model, why in refused.items()], 12)
    yield Criterion(f"packages, {sizes}: models that need Python", len(refused), "shown", None, note)


def at_least(name: str, good: int, wrong: Mapping[str, Sequence[str]]) -> Criterion:
    note = join_names([f"{model}: {why[0]}" for model, why in wrong.items()], 12)
    return Criterion(name, good, f">= {FEWEST}, and no other", good >= FEWEST and not wrong, note)
