"""Reduces a model that fails: to a graph, to a few calls, to small values, and to the stage that is at fault."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from keel.errors import KeelError
from keel.minify.blame import Blame, blame, hardware_free
from keel.minify.capture_model import Model, Recorded, record
from keel.minify.delta_debugging import Deadline
from keel.minify.failure import Failure, Subject
from keel.minify.graph_program import Program, called_again, program_of
from keel.minify.program_script import script
from keel.minify.reduce import FIRST, HANGING, LATER, SOONER, Search, fewer_options, reduced, seconds_of_calls
from keel.minify.trial_process import TrialProcess
from keel.repro_folder import load_repro

SCRIPT = 400.0
"""The most seconds that a script may take."""


@dataclass(frozen=True)
class Reduction:
    """What came of a model: the failure, the smallest program with it, the subject that shows it, the stage at fault,
    the text of the script and whether it exits with 1, and with 0 if eager PyTorch takes the place of the backends.
    """

    failure: Failure
    program: Program
    subject: Subject
    fault: Blame
    text: str
    shown: bool
    right_without: bool
    before: int
    trials: int
    seconds: float


Say = Callable[[str], None]


def minify(
    what: str,
    subject: Subject | None,
    *,
    when: str = "",
    training: bool = False,
    seconds: float = 300.0,
    say: Say = print,
) -> Reduction:
    """Reduces a model: ``MODULE:FACTORY``, a script (``*.py``), or a folder that KEEL_REPRO wrote.

    Raises KeelError[bad-option] if nothing fails, and KeelError[bad-file] for a folder that is not of that kind.
    """
    begin, deadline = time.monotonic(), Deadline(seconds)
    with TrialProcess() as process, _batches(what, subject, training, process, say) as (batches, named):
        search = Search(process, named, deadline, when, seconds=FIRST)
        program, failure = _failing(batches, search, when)
        say(f"The {program.kind} graph of {program.size} calls fails: {failure.sentence}")
        search.key, search.seconds = failure.key, HANGING if failure.kind == "hang" else LATER
        search.calls = min(search.calls / SOONER, HANGING / 2)
        small = reduced(program, search)
        search.subject = fewer_options(small, search)
        say(f"{small.size} calls are left after {search.trials} trials.")
        fault = blame(search, small)
        if (host := hardware_free(search, small, fault.stage)) is not None:
            search.subject = host
            small = replace(small, inputs=tuple(tuple(x.cpu() for x in each) for each in small.inputs))
        failure = search.failure(small)
        text = script(small, search.subject, failure)
        at_once = 1 if failure.kind == "slow" else 2  # most of the time of a script is that of importing
        with ThreadPoolExecutor(at_once) as pool:
            status, right = pool.map(exit_status, (text, script_of_eager(text, small, failure)))
        return Reduction(
            failure,
            small,
            search.subject,
            fault,
            text,
            status == 1,
            right == 0,
            program.size,
            search.trials,
            time.monotonic() - begin,
        )


def script_of_eager(text: str, program: Program, failure: Failure) -> str:
    """The script with eager PyTorch in place of the backends."""
    return script(program, Subject(("eager",)), failure) if text else text


def exit_status(text: str) -> int:
    """The exit status of a script in a process of its own; 2 if it does not end."""
    with tempfile.TemporaryDirectory(prefix="keel-minify-") as folder:
        path = Path(folder, "failing.py")
        path.write_text(text, encoding="utf-8")
        paths = os.pathsep.join([*(p for p in sys.path if p), os.getcwd()])
        environment = {**os.environ, "PYTHONPATH": paths}
        environment.pop("KEEL_REPRO", None)
        try:
            done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, timeout=SCRIPT)
        except subprocess.TimeoutExpired:
            return 2
        return done.returncode


Batches = tuple[Iterable[Recorded], Subject]


@contextmanager
def _batches(what: str, subject: Subject | None, training: bool, process: TrialProcess, say: Say) -> Iterator[Batches]:
    """The graphs to try, in order, and the subject."""
    if Path(what).is_dir():
        yield _of_folders(_folders(Path(what)), subject)
    elif what.endswith(".py"):
        with tempfile.TemporaryDirectory(prefix="keel-repro-") as folder:
            say(f"Running {what} with KEEL_REPRO")
            environment = {**os.environ, "KEEL_REPRO": folder}
            subprocess.run([sys.executable, what], env=environment, stdout=subprocess.DEVNULL)
            yield _of_folders(_folders(Path(folder)), subject)
    else:
        named = subject or Subject(("cpp",))
        yield _of_model(Model(what, training), named, process), named


def _of_model(model: Model, subject: Subject, process: TrialProcess) -> Iterator[Recorded]:
    """The graphs of a model. Decompositions are a part of the graphs of training, in which a wrong one does not show.
    So these graphs are captured with whole calls too: before the others if those are not right.
    """
    refusals = list[str]()

    def recorded(is_whole: bool) -> Iterator[Recorded]:
        outcome = process.run(record, model, subject, is_whole, seconds=FIRST * 2)
        if isinstance(outcome.result, Recorded):
            yield outcome.result
        else:
            refusals.append(outcome.sentence)

    if not model.training:
        yield from recorded(False)
    else:
        first = list(recorded(False))
        is_right = bool(first) and not first[0].captured_wrong
        yield from first if is_right else ()
        yield from recorded(True)
        yield from first if not is_right else ()
    if refusals:
        raise KeelError("bad-option", f"{model.what} cannot be captured.", {"PyTorch": refusals[0]})


def _folders(path: Path) -> list[Path]:
    """The folder itself, or those in it."""
    folders = [path] if (path / "repro.json").exists() else sorted(p.parent for p in path.glob("*/repro.json"))
    if not folders:
        raise KeelError("bad-option", f"{path} has no failing graph.", do="Give a folder that KEEL_REPRO wrote.")
    return folders


def _of_folders(folders: Sequence[Path], subject: Subject | None) -> Batches:
    programs, named = list[Program](), subject
    for folder in folders:
        repro = load_repro(folder)
        named = named or Subject(tuple(b for b in repro.backends if b != "eager") or ("eager",), repro.options)
        values = [repro.captured.constants[n.name] for n in repro.captured.gm.graph.find_nodes(op="placeholder")]
        programs.append(program_of(repro.captured.gm, values, repro.kind))
    assert named is not None
    return [Recorded(tuple(programs), ())], named


def _failing(batches: Iterable[Recorded], search: Search, when: str) -> tuple[Program, Failure]:
    """The first graph that fails, called once, or the first that fails called several times. Raises
    KeelError[bad-option] if none does.
    """
    sentences, about, programs = list[str](), dict[str, None](), list[Program]()

    def failing(program: Program, one: Program) -> Failure | None:
        search.calls = seconds_of_calls(program)
        failure = search.failure(one)
        if failure.kind and failure.kind != "invalid" and (not when or failure.kind == when):
            return failure
        if failure.kind:
            sentences.append(failure.sentence)
        return None

    for recorded in batches:
        about |= dict.fromkeys(filter(None, [recorded.captured_wrong, *recorded.left_out]))
        programs += recorded.programs
        for program in recorded.programs:
            if (failure := failing(program, program)) is not None:
                return program, failure
    for program in programs:
        if (failure := failing(program, again := called_again(program))) is not None:
            return again, failure
    why = {"graphs": f"{len(programs)} were tried."} | {f"graph {k}": text for k, text in enumerate(sentences)}
    if about:
        first = "No graph fails by itself, and the model differs before backends run."
        raise KeelError("bad-option", first, {"PyTorch": " ".join(about)})
    raise KeelError(
        "bad-option",
        "Nothing fails." if not when else f"Nothing fails in the way {when!r}.",
        why,
        do="Give the backends and options with which the model fails, or leave --when out.",
    )
