"""A search for files that do harm, guided by the branches that they take in what reads them: with atheris (libFuzzer).

It runs in a process of its own, because libFuzzer ends that.
"""

from __future__ import annotations

import random
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from .loaders import LOADERS
from .watch import Watch

MODULES = (
    "keel.serialize",
    "keel.artifact",
    "keel.documents",
    "keel.packages",
    "keel.repro_folder",
    "keel.runtime.launch_verify",
    "keel.spec.diff",
    "keel.spec.lock",
    "keel.loops.parser",
    "keel.loops.index",
    "keel.cost",
    "keel.registration",
    "keel.torch_adapter.trees",
    "keel.torch_adapter.fakes",
    "keel_conformance.harness.merge_shards",
    "keel_conformance.harness.waivers",
    "keel_conformance.harness.journal",
    "keel_conformance.certificate",
    "keel_conformance.levels.needs",
    "keel_conformance.workers.result_log",
    "tomllib",
    "zipfile",
    "pickletools",
)
"""What reads files: these and what is in them.  Their branches guide the search."""


def main(name: str, seconds: int, corpus: Path | None = None) -> None:
    """Searches until the time is over; an input that does harm ends it, and is kept beside the corpus."""
    try:
        import atheris
    except ImportError:
        sys.exit("A guided search needs atheris: pip install 'torch-keel[fuzz]'.")
    for function in _functions():
        atheris.instrument_func(function)
    loader, folder = LOADERS[name], Path(tempfile.mkdtemp(prefix="keel-fuzz-"))
    retained = corpus or folder / "corpus"
    retained.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    watch = Watch(folder / "file")
    for number, data in enumerate(loader.seeds()):
        (retained / f"seed-{number}").write_bytes(data)
        watch.file.write_bytes(data)
        loader.load(loader.lay_out(watch.file))

    def one(data: bytes) -> None:
        outcome = watch.read(loader.load, data, loader.lay_out)
        if outcome.bad:
            raise RuntimeError(f"{outcome.ending}, {outcome.seconds:.2f} s, {outcome.error}, {outcome.executed}")

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        draw = random.Random(seed)
        if draw.random() < 0.4:
            return bytes(atheris.Mutate(data, most))
        return loader.mutate(data, draw)[:most]

    options: list[Any] = [
        sys.argv[0],
        str(retained),
        f"-max_total_time={seconds}",
        "-timeout=30",
        "-rss_limit_mb=6144",
        "-max_len=262144",
        f"-artifact_prefix={retained.parent}/{name}-",
        "-print_final_stats=1",
    ]
    atheris.Setup(options, one, custom_mutator=mutated)
    atheris.Fuzz()


def _functions() -> Iterator[FunctionType]:
    for name, module in sorted(sys.modules.items()):
        if any(name == m or name.startswith(f"{m}.") for m in MODULES):
            for value in [*vars(module).values()]:
                if getattr(value, "__module__", None) == name:
                    yield from _of(value)


def _of(value: Any) -> Iterator[FunctionType]:
    """A function, or those of a class."""
    held = [*vars(value).values()] if isinstance(value, type) else [value]
    for one in held:
        plain = getattr(one, "__func__", one)
        if isinstance(plain, FunctionType) and not isinstance(one, ModuleType):
            yield plain


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *map(Path, sys.argv[3:]))
