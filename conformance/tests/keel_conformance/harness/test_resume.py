"""A run that is killed goes on where it was, and comes to the verdicts of one that was not."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from keel import KeelError
from keel_conformance.cases.case import Case
from keel_conformance.harness.journal import FILE, Journal, read
from keel_conformance.harness.merge_shards import merge_shards
from keel_conformance.harness.run import Shard, head_of
from keel_conformance.results.verdict import Verdict

HERE = Path(__file__).parent
GOOD, BAD = Verdict("a", "pass"), Verdict("b", "fail", "ulp", "It is off.", "neg.C1", {"ulps": 3.0}, 0.5)
RUN = """
import sys
from pathlib import Path
from keel_conformance.cases.plan import plan
from keel_conformance.harness.protocol import Settings
from keel_conformance.harness.run import run

if __name__ == "__main__":
    cases = [c for c in plan(tier="standard", ops=["neg", "abs"]) if c.kind == "op" and c.dtype in ("f64", "i64")]
    ran = run(cases, sys.argv[2], out=Path(sys.argv[1]), resume=True, settings=Settings(sys.argv[2], threads=1))
    print(ran.repeated, len(cases))
"""


def go(folder: Path, backend: str) -> subprocess.Popen[str]:
    script = folder.parent / "run.py"
    script.write_text(RUN)
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), backend],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE)},
    )


def statuses(folder: Path) -> dict[str, tuple[str, str]]:
    return {v.case: (v.status, v.sentence) for v in read(folder / FILE)[1].values()}


def test_a_run_that_is_killed_comes_to_the_same_verdicts(tmp_path: Path) -> None:
    folder, draw = tmp_path / "killed", random.Random(4)
    for _ in range(1):
        process, lines = go(folder, "faulty_backends:third"), 0
        begin = (folder / FILE).read_text().count("\n") if (folder / FILE).exists() else 0
        limit, more = time.monotonic() + 120, draw.randint(2, 6)
        while lines < begin + more and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.01)
            lines = (folder / FILE).read_text().count("\n") if (folder / FILE).exists() else 0
        assert process.poll() is None
        process.kill()
        process.communicate()
    said, _ = go(folder, "faulty_backends:third").communicate(timeout=300)
    whole, _ = go(tmp_path / "whole", "faulty_backends:third").communicate(timeout=300)
    (repeated, count), (none, _) = (map(int, text.split()) for text in (said, whole))
    assert statuses(folder) == statuses(tmp_path / "whole") and len(statuses(folder)) == count
    assert {s for s, _ in statuses(folder).values()} == {"pass", "fail"}
    assert none == 0 and repeated <= 2 * 32
    assert not (folder / "results").exists()


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    journal = Journal.opened(tmp_path, {"backend": "acme"})
    journal.begin(["a", "b"])
    journal.end([GOOD, BAD])
    journal.begin(["c"])
    journal.close()
    with (tmp_path / FILE).open("a") as file:
        file.write('{"end": [{"case": "c", "sta')  # the run was killed in the middle of a line
    again = Journal.opened(tmp_path, {"backend": "acme"}, resume=True)
    assert again.verdicts == {"a": GOOD, "b": BAD} and again.started == 3
    again.end([Verdict("c", "crash")])
    again.close()
    lines = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [next(iter(line)) for line in lines] == ["run", "begin", "end", "begin", "end"]
    assert lines[2]["end"][1] == asdict(BAD)


def test_only_a_run_of_the_same_goes_on(tmp_path: Path) -> None:
    Journal.opened(tmp_path, {"backend": "acme", "seed": 0}).close()
    with pytest.raises(KeelError, match="is another one") as raised:
        Journal.opened(tmp_path, {"backend": "acme", "seed": 1}, resume=True)
    assert "0 there, 1 asked for" in str(raised.value)
    anew = Journal.opened(tmp_path, {"backend": "acme", "seed": 1})
    anew.close()
    assert anew.verdicts == {} and read(tmp_path / FILE)[0] == {"backend": "acme", "seed": 1}


CASES = [Case("neg", "pointwise", "op", "core", seed=k) for k in range(40)]


def test_shards_are_parts_of_the_plan() -> None:
    parts = [Shard(k, 3).of_plan(CASES) for k in (1, 2, 3)]
    assert sorted(c.seed for part in parts for c in part) == list(range(40)) and all(parts)
    assert Shard.read("2/3") == Shard(2, 3) and str(Shard(2, 3)) == "2/3"


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0"])
def test_there_are_no_other_shards(text: str) -> None:
    with pytest.raises(KeelError, match="no shard"):
        Shard.read(text)


def part(folder: Path, shard: Shard, **about: object) -> Path:
    journal = Journal.opened(folder, head_of(CASES, "acme", shard, **about))
    journal.end(Verdict(c.id, "pass") for c in shard.of_plan(CASES))
    journal.close()
    return folder


def test_shards_make_one_run(tmp_path: Path) -> None:
    folders = [part(tmp_path / str(k), Shard(k, 3)) for k in (1, 2, 3)]
    together = merge_shards(folders)
    assert set(together.verdicts) == {c.id for c in CASES} and not together.missing
    assert together.head["shard"] == "1/1" and together.head["cases"] == 40
    assert merge_shards(folders[:2]).missing == (Shard(3, 3),)


def test_what_is_no_part_of_the_run_is_said(tmp_path: Path) -> None:
    one = part(tmp_path / "one", Shard(1, 2), seed=0)
    for other, said in (
        (part(tmp_path / "seed", Shard(2, 2), seed=1), "seed: 0 in"),
        (part(tmp_path / "of", Shard(2, 3), seed=0), "shard: 1/2 in"),
        (part(tmp_path / "twice", Shard(1, 2), seed=0), "shard: 1/2 in both"),
        (tmp_path, "There is no run in"),
    ):
        with pytest.raises(KeelError) as raised:
            merge_shards([one, other])
        assert said in str(raised.value)
