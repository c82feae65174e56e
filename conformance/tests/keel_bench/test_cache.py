"""A slice of the trials of the cache, by the command that runs all of them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from keel_bench.cache import DAMAGE, DIED, HUNG, RAISED, RIGHT, WRONG, Killed, bars


def test_a_slice_of_the_trials(tmp_path: Path) -> None:
    """One entry of each backend for each kind of damage, a small crowd, and a few kills."""
    out = tmp_path / "cache.json"
    entries = 2 * len(DAMAGE)
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "keel_bench.cache",
            "--entries",
            str(entries),
            "--processes",
            "2",
            "--threads",
            "3",
            "--rounds",
            "1",
            "--killed",
            "4",
            "--seed",
            "1",
            "--json",
            str(out),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    record = json.loads(out.read_text())
    assert record["damage"] == {kind: {RIGHT: 2} for kind in DAMAGE}
    assert record["machine"]["compiler"] and len(record["bars"]) == 8


@pytest.mark.parametrize("kind", [k for k in DAMAGE if k not in ("permissions", "a folder, pipe or link")])
def test_damage_changes_the_file(kind: str, tmp_path: Path) -> None:
    for seed in range(20):
        path, other = tmp_path / "entry", tmp_path / "other"
        held = random.Random(seed).randbytes(3000)
        path.write_bytes(held)
        other.write_bytes(b"another")
        DAMAGE[kind](path, random.Random(seed), [path, other])
        assert path.read_bytes() != held


def test_failures_are_counted() -> None:
    bad = Counter({DIED: 1, WRONG: 2, RAISED: 3, HUNG: 4})
    damage = {kind: Counter({RIGHT: 3}) for kind in DAMAGE} | {"empty": bad}
    rows = bars(damage, Counter({RIGHT: 7, RAISED: 1}), Killed(Counter({RIGHT: 1, DIED: 2}), drafts=3, swept=1))
    assert [row.value for row in rows] == [31, 1, 2, 3, 4, 1, 2, 2]
    assert [row.holds for row in rows] == [None] + [False] * 7


def test_what_becomes_of_a_process(tmp_path: Path) -> None:
    text = (
        "import os, signal, time\n"
        "from pathlib import Path\n"
        "from keel_bench.cache import forked, outcome\n"
        "def dies(): os.kill(os.getpid(), signal.SIGSEGV)\n"
        "def raises(): raise ValueError('why')\n"
        "def hangs(): time.sleep(1000)\n"
        "works = (lambda: 'right', lambda: 'wrong numbers', raises, dies, hangs)\n"
        "print(*(outcome(forked(w, Path('x')), limit=60 if w is not hangs else 0.2) for w in works), sep=', ')\n"
    )
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ran.stdout.strip() == ", ".join((RIGHT, WRONG, RAISED, DIED, HUNG)) and "ValueError: why" in ran.stderr


def test_the_trials_see_a_cache_that_does_not_verify() -> None:
    text = (
        "import random, tempfile\n"
        "from pathlib import Path\n"
        "import torch\n"
        "import keel.cache.store as store\n"
        "from keel_bench import cache\n"
        "torch.set_num_threads(1)\n"
        "store.unsealed = lambda name, held: held[:-len(store.sealed('', b''))]\n"
        "def swap(path, drawn, entries):\n"
        "    kind = path.name.partition('-')[0]\n"  # kernels, or launchers
        "    alike = [e for e in entries if e.suffix == '.so' and e != path and e.name.startswith(kind)]\n"
        "    [other] = alike if path.suffix == '.so' else [path]\n"
        "    path.write_bytes(other.read_bytes())\n"
        "cache.DAMAGE = {'swapped': swap}\n"
        "with cache.targets() as backends, tempfile.TemporaryDirectory() as folder:\n"
        "    print(dict(cache.damaged(backends, 4, random.Random(1), Path(folder))['swapped']))\n"
    )
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    # Kernels of the C++ backend are named by what they compute, those of the rendered package are not.
    assert ran.stdout.strip() == str({RAISED: 2, WRONG: 2})
