"""``keel demo``: a vendor's plugin made, installed and tried, then two models placed on it, on cpp and on eager.

Everything happens in a temporary folder: the plugin is installed beside the environment, not into it.
"""

from __future__ import annotations

import importlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import keel
from keel_conformance.models import ModelCase

from .accuracy_trial import leave
from .compilers import EAGER, INDUCTOR, compiled
from .demo_models import Shown, models
from .error_metrics import TIMES, compare, judge
from .training_step import MODES, Step, prepare, reference, run

VENDOR, PACKAGE = "acme", "keel_acme"
PLACED_ON = (VENDOR, "cpp", EAGER)
STEPS = 7
TIMINGS = 15
REASONS = 8

Forward = Callable[..., Any]


class Terminal:
    """The terminal, and how far the demo is."""

    def __init__(self) -> None:
        self.console = Console(width=None if sys.stdout.isatty() else 120)
        self.done, self.start = 0, time.monotonic()

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A numbered step: a spinner while it runs, then how long it took."""
        self.done += 1
        began = time.monotonic()
        self.console.rule(f"[bold]{self.done}/{STEPS}  {title}", align="left")
        with self.console.status("working"):
            yield
        self.console.print(f"[dim]{time.monotonic() - began:.0f} s[/]\n")


app = typer.Typer(add_completion=False)


@app.callback(invoke_without_command=True)
def main() -> None:
    """Create a vendor's plugin, install it and run two models on it, in a few minutes and a temporary folder."""
    shown = Terminal()
    chosen, sentences = models()
    with TemporaryDirectory(prefix="keel-demo-") as name:
        folder = Path(name)
        # Caches of its own: what is shown is a first run, on any machine.
        os.environ |= {
            "KEEL_CACHE_DIR": f"{name}/keel",
            "TORCHINDUCTOR_CACHE_DIR": f"{name}/inductor",
            "HF_HUB_OFFLINE": "1",
        }
        make_plugin(shown, folder)
        for sentence in sentences:
            shown.console.print(f"{sentence}\n")
        for model in chosen:
            place(shown, model)
        for model in chosen:
            measure(shown, model)
    shown.console.print(f"Done in {time.monotonic() - shown.start:.0f} s.")


# -- the vendor's side -------------------------------------------------------------------------------------


def make_plugin(shown: Terminal, folder: Path) -> None:
    """Renders, installs, discovers and tries a plugin; afterwards this process finds it too."""
    plugin, site = folder / PACKAGE, folder / "site"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    with shown.step(f"keel new {PACKAGE} --level graph"):
        call([command("keel"), "new", PACKAGE, "--level", "graph", "--dir", str(plugin)], environment)
        for file in sorted(p for p in plugin.rglob("*") if p.is_file()):
            lines = len(file.read_text().splitlines())
            shown.console.print(f"  {file.relative_to(folder)}  [dim]{lines} lines[/]", highlight=False)
    with shown.step("pip install, and the plugin is discovered"):
        call(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--no-build-isolation",
                "--target",
                str(site),
                str(plugin),
            ],
            environment,
        )
        shown.console.print(call([command("keel"), "backends"], environment), markup=False, highlight=False)
    with shown.step("the plugin's own smoke test"):
        output = call([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(plugin)], environment)
        shown.console.print("  " + output.strip().splitlines()[-1], highlight=False)
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()


def command(name: str) -> str:
    """The path of a script that is installed beside this Python."""
    return str(Path(sys.executable).with_name(name))


def call(arguments: Sequence[str], environment: dict[str, str]) -> str:
    """What the command printed. Raises RuntimeError with that if it failed."""
    result = subprocess.run(
        arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if result.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{result.stdout}")
    return result.stdout


# -- the models ---------------------------------------------------------------------------------------------


def place(shown: Terminal, model: Shown) -> None:
    """Shows which backend takes which calls, the reasons for refusals, and the errors against float64."""
    with shown.step(f"{model.title} on {', '.join(PLACED_ON)}"):
        case = prepare(Step("training"), model.make("line"))
        named: dict[str, Any] = {**case.kwargs, **case.targets}
        explanation = keel.explain(case.model, *case.args, backends=PLACED_ON, **named)
        shown.console.print(parts(explanation))
        shown.console.print(reasons(explanation))
        shown.console.print(errors(model))


def parts(explanation: keel.testing.Explanation) -> Table:
    """For each graph, how many calls each backend took, in how many parts."""
    table = Table("graph", *explanation.backends, title="Placement: calls in parts", title_justify="left")
    for graph in explanation.graphs:
        owned = {name: [part.calls for part in graph.parts if part.owner == name] for name in explanation.backends}
        table.add_row(graph.kind, *(f"{sum(calls)} in {len(calls)}" if calls else "-" for calls in owned.values()))
    return table


def reasons(explanation: keel.testing.Explanation) -> Table:
    """The refusals that hit the most calls, in the backend's own words, with a line of the model that they hit."""
    refusals = sorted((r for graph in explanation.graphs for r in graph.refused), key=lambda r: -r.calls)
    table = Table(
        "calls",
        "went to",
        "why not elsewhere",
        "for instance at",
        title=f"Refusals: the first {min(REASONS, len(refusals))} of {len(refusals)}; keel explain shows all",
        title_justify="left",
    )
    for refusal in refusals[:REASONS]:
        at = refusal.where[0].partition("   ")[0] if refusal.where else ""  # before the line's text
        table.add_row(str(refusal.calls), refusal.owner, escape(refusal.reason), Path(at).name)
    return table


def errors(model: Shown, on: Sequence[str] = PLACED_ON, scale: str = "line") -> Table:
    """For each mode: the tensor that fares worst beside eager, and the typical one."""
    table = Table(
        "step",
        "tensors",
        "worst tensor",
        "its error",
        "eager's",
        "ratio",
        f"<= {TIMES:g} x",
        title="Errors against float64, relative to each tensor's norm",
        title_justify="left",
    )
    for mode in MODES:
        step = Step(mode)
        cases = [prepare(step, model.make(scale)) for _ in range(2)]
        forwards: list[Forward] = [placed(on, cases[0].model), cases[1].model]
        left = [leave(step, case, forward) for case, forward in zip(cases, forwards, strict=True)]
        verdicts = judge([compare(left[0], left[1], reference(step, model.make(scale)))])
        worst = verdicts[0]
        table.add_row(
            mode,
            str(len(verdicts)),
            worst.name,
            f"{worst.error:.2e}",
            f"{worst.eager:.2e}",
            f"{worst.times:.2f}",
            "yes" if all(v.holds for v in verdicts) else "[bold red]NO",
        )
    return table


def placed(backends: Sequence[str], fn: Forward) -> Forward:
    options: dict[str, Any] = {"backends": list(backends)}
    return torch.compile(fn, backend="keel", options=options)


def measure(shown: Terminal, model: Shown) -> None:
    """The first call and the warm call of an inference step under each compiler."""
    with shown.step(f"{model.title}: speed of inference"), TemporaryDirectory(prefix="keel-demo-") as caches:
        # What the steps before have compiled would make a first call too short.
        torch.compiler.reset()
        os.environ |= {"KEEL_CACHE_DIR": f"{caches}/keel", "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor"}
        step = Step("inference")
        case = prepare(step, model.make("line"))
        forwards: dict[str, Forward] = {
            "eager": case.model,
            "Inductor": compiled(case.model, INDUCTOR),
            "keel, cpp": placed(("cpp", EAGER), case.model),
            f"keel, {VENDOR} and cpp": placed(PLACED_ON, case.model),
        }
        first = {name: seconds(step, case, forward) for name, forward in forwards.items()}
        warm = interleaved(step, case, forwards)
        table = Table("compiler", "first call", "warm call", "beside eager", title_justify="left")
        for name, ms in warm.items():
            table.add_row(name, f"{first[name]:.1f} s", f"{ms:.1f} ms", f"{warm['eager'] / ms:.2f} x as fast")
        shown.console.print(table)


def interleaved(step: Step, case: ModelCase, forwards: dict[str, Forward]) -> dict[str, float]:
    """Median milliseconds; the compilers take turns, so that a busy moment slows all of them."""
    times: dict[str, list[float]] = {name: [] for name in forwards}
    for _ in range(TIMINGS):
        for name, forward in forwards.items():
            times[name].append(seconds(step, case, forward))
    return {name: 1e3 * statistics.median(result) for name, result in times.items()}


def seconds(step: Step, case: ModelCase, forward: Forward) -> float:
    start = time.perf_counter()
    run(step, case, forward)
    return time.perf_counter() - start


if __name__ == "__main__":
    app()
