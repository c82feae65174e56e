"""``python -m keel_bench.cache``: whether caches of compiled kernels survive damage, crowds and kills.

Backends build kernels in processes forked for each trial: one that dies, hangs or gives a wrong number costs that trial
and is counted.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

import keel
from keel_conformance import report
from keel_conformance.cli_options import Json

from .demo import call, command

LIMIT = 300.0
"""Seconds after which a trial counts as one that hangs."""
RIGHT, WRONG, RAISED, DIED, HUNG = "right", "wrong numbers", "raised", "died", "hung"
N = 512


# -- what is built -------------------------------------------------------------------------------------


def sources(target: keel.LoopTarget, factor: float) -> list[keel.Source]:
    """Two kernels of a number that stands in their machine code."""
    texts = (
        f"""kernel scaled(in0: f32[{N}]) -> (out0: f32[{N}]):
  parallel i < {N}:
    %0 = load in0[i]
    %1 = const {factor!r} : f32
    %2 = mul %0 %1
    store out0[i] %2
""",
        f"""kernel total(in0: f32[{N}]) -> (out0: f32[1]):
  parallel i < 1:
    reduce r < {N}:
      %0 = load in0[r]
      %1 = reduce sum %0
    %2 = const {factor!r} : f32
    %3 = mul %1 %2
    store out0[0] %3
""",
    )
    kernels = [keel.testing.fitted(keel.loops.parse(text), target) for text in texts]
    return [keel.Source(k, target.render(k)) for k in kernels]


def check(target: keel.LoopTarget, factor: float) -> str:
    """Builds the kernels and runs them: RIGHT or WRONG.  Raises what the backend raises."""
    x = torch.arange(N, dtype=torch.float32)  # sums of few integers are exact in any order
    scaled, total = torch.zeros(N), torch.zeros(1)
    first, second = target.build(sources(target, factor))
    first(x, scaled)
    second(x, total)
    right = torch.equal(scaled, x * factor) and torch.equal(total, x.sum(0, keepdim=True) * factor)
    return RIGHT if right else WRONG


@contextmanager
def targets() -> Iterator[dict[str, keel.LoopTarget]]:
    """The C++ backend, and the loop-level package as ``keel new`` renders it."""
    with tempfile.TemporaryDirectory(prefix="keel-cache-trials-") as folder:
        place = Path(folder) / "package"
        call([command("keel"), "new", "keel_rendered", "--level", "loop", "--dir", str(place)], dict(os.environ))
        sys.path.insert(0, str(place))
        try:
            rendered = __import__("keel_rendered").backend
        finally:
            sys.path.remove(str(place))
        cpp = keel.testing.find("cpp").target
        assert cpp is not None
        yield {"cpp": cpp, "the rendered package": rendered.target}


# -- processes -----------------------------------------------------------------------------------------


def forked(work: Callable[[], str], cache: Path) -> int:
    """Starts a process that does ``work`` with that cache; ``outcome`` tells what came of it."""
    process = os.fork()
    if process:
        return process
    code = 3
    try:
        os.environ["KEEL_CACHE_DIR"] = str(cache)
        os.environ.pop("KEEL_CACHE_SIZE", None)
        warnings.simplefilter("ignore")  # a full or foreign folder is among the trials
        # The first use of PyTorch's pool after a fork replaces it, unguarded: that must not happen in two threads.
        torch.set_num_threads(1)
        code = {RIGHT: 0, WRONG: 4}[work()]
    except BaseException as raised:
        print(f"{type(raised).__name__}: {raised}", file=sys.stderr)
    finally:
        os._exit(code)


def outcome(process: int, limit: float = LIMIT) -> str:
    """RIGHT, WRONG, RAISED, DIED or HUNG, after the process has ended, or was killed for hanging."""
    ends = time.monotonic() + limit
    while time.monotonic() < ends:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            if os.WIFSIGNALED(status):
                return DIED
            return {0: RIGHT, 4: WRONG}.get(os.WEXITSTATUS(status), RAISED)
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return HUNG


# -- damage --------------------------------------------------------------------------------------------


def flip(path: Path, drawn: random.Random, entries: Sequence[Path]) -> None:
    held = bytearray(path.read_bytes())
    held[drawn.randrange(len(held))] ^= 1 << drawn.randrange(8)
    path.write_bytes(held)


def cut(path: Path, drawn: random.Random, entries: Sequence[Path]) -> None:
    os.truncate(path, drawn.randrange(path.stat().st_size))


def zero(path: Path, drawn: random.Random, entries: Sequence[Path]) -> None:
    """A block that never reached the disk."""
    held = bytearray(path.read_bytes())
    at = 512 * drawn.randrange(1 + len(held) // 512)
    held[at : at + 4096] = bytes(len(held[at : at + 4096]))
    path.write_bytes(held if any(held[at:]) else held[:-1])


def replace(path: Path, drawn: random.Random, entries: Sequence[Path]) -> None:
    """By another entry, by a library of the system, or by a text."""
    others: list[Callable[[], bytes]] = [
        lambda: drawn.choice([e for e in entries if e != path]).read_bytes(),
        lambda: Path(sys.executable).resolve().read_bytes()[:100_000],
        lambda: b"#!/bin/sh\nexit 1\n",
    ]
    path.write_bytes(drawn.choice(others)())


def append(path: Path, drawn: random.Random, entries: Sequence[Path]) -> None:
    with path.open("ab") as file:
        file.write(drawn.randbytes(drawn.randrange(1, 10_000)))


def empty(path: Path, drawn: random.Random, entries: Sequence[Path]) -> None:
    path.write_bytes(b"")


def permission(path: Path, drawn: random.Random, entries: Sequence[Path]) -> None:
    path.chmod(drawn.choice([0, 0o200, 0o222, 0o622, 0o666, 0o777]))


def exchange(path: Path, drawn: random.Random, entries: Sequence[Path]) -> None:
    """A folder, a pipe or a link in its place."""
    path.unlink()
    made: list[Callable[[], Any]] = [
        path.mkdir,
        lambda: (path / "inside").mkdir(parents=True),
        lambda: os.mkfifo(path),
        lambda: path.symlink_to("nowhere"),
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.symlink_to(drawn.choice([e for e in entries if e != path])),
    ]
    drawn.choice(made)()


DAMAGE = {
    "a bit turned": flip,
    "cut short": cut,
    "a block of zeros": zero,
    "replaced": replace,
    "longer": append,
    "empty": empty,
    "permissions": permission,
    "a folder, pipe or link": exchange,
}


def damaged(
    backends: Mapping[str, keel.LoopTarget], count: int, drawn: random.Random, place: Path
) -> dict[str, Counter[str]]:
    """What came of ``count`` damaged entries, by the kind of damage."""
    results: dict[str, Counter[str]] = {kind: Counter() for kind in DAMAGE}
    clean: dict[str, Path] = {}
    for name, target in backends.items():
        clean[name] = place / f"clean-{len(clean)}"
        for factor in (3.5, 1.75):
            assert outcome(forked(partial(check, target, factor), clean[name])) == RIGHT
    for n in range(count):
        name, kind = list(backends)[n % len(backends)], list(DAMAGE)[n // len(backends) % len(DAMAGE)]
        cache = place / "trial"
        shutil.copytree(clean[name], cache)
        cache.chmod(0o700)
        entries = sorted(cache.iterdir())
        libraries = [e for e in entries if e.suffix == ".so"]
        # Mostly what is loaded; sometimes what else there is.
        DAMAGE[kind](drawn.choice(libraries if drawn.random() < 0.9 else entries), drawn, entries)
        factor = drawn.choice([3.5, 1.75])
        both = [outcome(forked(partial(check, backends[name], f), cache)) for f in (factor, 5.25 - factor)]
        results[kind][next((o for o in both if o != RIGHT), RIGHT)] += 1
        shutil.rmtree(cache)
    return results


# -- crowds --------------------------------------------------------------------------------------------


def crowd(target: keel.LoopTarget, processes: int, threads: int, place: Path) -> Counter[str]:
    """What came of that many threads in that many processes that build at once, with a cache that is not there yet."""
    begins = time.monotonic() + 0.5

    def one(outputs: list[str], number: int) -> None:
        time.sleep(max(0.0, begins - time.monotonic()))
        try:
            outputs.append(check(target, 3.5))  # what all build
            outputs.append(check(target, 2.0 + number % 4))  # what some build
        except BaseException as raised:
            print(f"{type(raised).__name__}: {raised}", file=sys.stderr)
            outputs.append(RAISED)

    def work() -> str:
        outputs: list[str] = []
        started = [threading.Thread(target=one, args=(outputs, n)) for n in range(threads)]
        for each in started:
            each.start()
        for each in started:
            each.join()
        if RAISED in outputs or len(outputs) != 2 * threads:
            raise SystemExit(1)
        return WRONG if WRONG in outputs else RIGHT

    running = [forked(work, place) for _ in range(processes)]
    return Counter(outcome(each, 2 * LIMIT) for each in running)


# -- kills ---------------------------------------------------------------------------------------------


@dataclass
class Killed:
    """What came of processes that build or write until they are killed, and of one after each that builds."""

    after: Counter[str]
    drafts: int = 0
    swept: int = 0


def kills(backends: Mapping[str, keel.LoopTarget], count: int, drawn: random.Random, cache: Path) -> Killed:
    result = Killed(Counter())
    held = {str(n): str(n).encode() * 1_000_000 for n in range(4)}
    store = keel.cache.Cache("trial")
    for n in range(count):
        target, start = list(backends.values())[n % len(backends)], n

        def work(target: keel.LoopTarget = target, start: int = start) -> str:
            for turn in range(1 << 30):
                if start % 4 < 2:
                    check(target, 4.0 + start + turn / 64)  # new kernels, so the compiler runs
                else:
                    store.put([str(turn % 4)], held[str(turn % 4)])
            return RIGHT

        process = forked(work, cache)
        time.sleep(drawn.random() * 0.6)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)

        def after(target: keel.LoopTarget = target) -> str:
            intact = all(store.get([key]) in (None, data) for key, data in held.items())
            return check(target, 3.5) if intact else WRONG

        result.after[outcome(forked(after, cache))] += 1
    time.sleep(1.0)  # compilers that lost their caller end
    left = list(cache.glob("keel-draft-*"))
    for path in left:
        os.utime(path, (0, 0))

    def put() -> str:
        store.put(["last"], b"")
        return RIGHT

    outcome(forked(put, cache))
    result.drafts, result.swept = len(left), len(left) - len(list(cache.glob("keel-draft-*")))
    return result


# -- the command ---------------------------------------------------------------------------------------


def bars(damage: dict[str, Counter[str]], crowds: Counter[str], killed: Killed) -> list[report.Criterion]:
    totals = sum(damage.values(), Counter())
    note = ", ".join(f"{sum(counts.values())} {kind}" for kind, counts in damage.items())
    rows = [
        report.Criterion(f"damaged entries: {what}", totals[what], "0", totals[what] == 0, note if what == DIED else "")
        for what in (DIED, WRONG, RAISED, HUNG)
    ]
    rows.insert(
        0, report.Criterion("damaged entries", totals.total(), "", None, "each in two processes, one after the other")
    )
    failed = crowds.total() - crowds[RIGHT]
    rows.append(
        report.Criterion(
            "processes of crowds on a cold cache that fail", failed, "0", failed == 0, f"of {crowds.total()}"
        )
    )
    failed = killed.after.total() - killed.after[RIGHT]
    rows.append(
        report.Criterion("processes after a kill that fail", failed, "0", failed == 0, f"of {killed.after.total()}")
    )
    rows.append(
        report.Criterion(
            "drafts of killed processes that stay",
            killed.drafts - killed.swept,
            "0",
            killed.drafts == killed.swept,
            f"of {killed.drafts}, an hour later",
        )
    )
    return rows


def main(
    json: Json = None,
    entries: Annotated[int, typer.Option(min=0, help="How many entries are damaged.")] = 1000,
    processes: Annotated[int, typer.Option(min=1, help="Processes that build at once.")] = 8,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each that build at once.")] = 8,
    rounds: Annotated[int, typer.Option(min=0, help="How often they do, for each backend.")] = 3,
    killed: Annotated[int, typer.Option(min=0, help="How many processes are killed.")] = 100,
    seed: Annotated[int, typer.Option(help="What damage and moments are drawn from.")] = 0,
) -> None:
    """Damage entries, build in crowds, kill writers. Exits with 1 if a process dies, fails or gives a wrong number."""
    torch.set_num_threads(1)  # threads of OpenMP do not survive forking
    began, drawn = time.monotonic(), random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="keel-cache-trials-") as folder, targets() as backends:
        place, crowds = Path(folder), Counter[str]()
        damage = damaged(backends, entries, drawn, place)
        for n in range(rounds):
            for k, target in enumerate(backends.values()):
                crowds += crowd(target, processes, threads, place / f"crowd-{n}-{k}")
        after = kills(backends, killed, drawn, place / "kills")
    rows = bars(damage, crowds, after)
    report.show(Console(), rows)
    if json is not None:
        report.write(
            json,
            rows,
            time.monotonic() - began,
            damage={kind: dict(counts) for kind, counts in damage.items()},
            seed=seed,
            crowd={"processes": processes, "threads": threads, "rounds": rounds, "backends": list(backends)},
        )
    if not all(row.holds is not False for row in rows):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
