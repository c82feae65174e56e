"""From figures to bars: what each part reads, counts and holds against its target."""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from keel import KeelWarning
from keel_bench import accuracy, compile_time, memory_traffic, run_time, size_sweep
from keel_bench.cli import app
from keel_bench.compilers import counted
from keel_bench.fallbacks import left_to_eager, troubles
from keel_bench.jobs import Job, Selection
from keel_conformance import report
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

EVERYTHING = Selection(("bert", "resnet50"), ("inference", "training"), "cpp")


def test_jobs_cover_what_was_chosen() -> None:
    assert [j.title for j in accuracy.jobs(EVERYTHING)] == [
        "accuracy bert inference fp32 cpp",
        "accuracy bert inference bf16 cpp",
        "accuracy bert training fp32 cpp",
        "accuracy bert training bf16 cpp",
        "accuracy resnet50 inference fp32 cpp",
        "accuracy resnet50 training fp32 cpp",
    ]
    assert {j.compiler for j in compile_time.jobs(EVERYTHING)} == {"cpp", "inductor"}
    assert [(j.model, j.along) for j in size_sweep.jobs(EVERYTHING) if j.mode == "training"] == [
        ("bert", "batch"),
        ("bert", "length"),
        ("resnet50", "batch"),
    ]


def test_sizes_are_twenty_and_hold_one() -> None:
    for sizes in size_sweep.SIZES.values():
        assert len(sizes) == len(set(sizes)) == 20 and 1 in sizes[2:]


@pytest.mark.parametrize(("count", "at_one", "holds"), [(2, 0, True), (3, 1, True), (3, 0, False), (4, 2, False)])
def test_size_one_may_cost_one_more_compilation(count: int, at_one: int, holds: bool) -> None:
    figures = {
        "sizes": 20,
        "compilations": count,
        "at_one": at_one,
        "captures": 2,
        "worst": 1.0,
        "worst_at": "",
        "over": [],
    }
    first, _ = size_sweep.bars({Job("dynamic", "bert", "cpp", along="batch"): Outcome(figures)})
    assert first.holds is holds


def test_a_sweep_counts_compilations_and_errors() -> None:
    job = Job("dynamic", "bert", "eager", scale="tiny", along="batch")
    torch.compiler.reset()  # what other tests taught PyTorch of the axis
    found = size_sweep.sweep(job, (4, 6, 1, 3))
    assert found["worst"] <= 1 and found["over"] == []
    assert (found["compilations"], found["at_one"]) == (3, 1)


def test_inductor_is_not_counted() -> None:
    with pytest.raises(ValueError, match="inductor's compilations cannot be counted"):
        counted(len, "inductor")


def test_compile_time_is_a_ratio_to_inductors() -> None:
    own, other = Job("compile", "bert", "cpp"), Job("compile", "bert", "inductor")
    slow = {own: Outcome({"seconds": 6.0}), other: Outcome({"seconds": 10.0})}
    (row,) = compile_time.bars(slow)
    assert (row.value, row.holds) == (0.6, False)
    (row,) = compile_time.bars({**slow, own: Outcome({"seconds": 5.0})})
    assert (row.value, row.holds) == (0.5, True)


def test_run_times_are_shown_beside_both() -> None:
    figures = {"eager": 10.0, "inductor": 5.0, "cpp": 8.0}
    jobs = {Job("run", model, "cpp"): Outcome(figures) for model in ("bert", "vit")}
    rows = list(run_time.bars(jobs))
    assert [row.value for row in rows] == pytest.approx([0.8, 1.6, 0.8, 1.6, 0.8, 1.6])
    assert all(row.holds is None for row in rows)


def test_operators_in_eager_parts_are_read_from_the_dumps(tmp_path: Path) -> None:
    folder = tmp_path / "00-forward"
    folder.mkdir()
    (folder / "03-placed.json").write_text(
        json.dumps(
            {
                "parts": [
                    {"name": "part0", "owner": "cpp", "nodes": ["mul"]},
                    {"name": "part1", "owner": "eager", "nodes": ["sort", "getitem"]},
                ]
            }
        )
    )
    (folder / "02-legalized.fx").write_text(
        '        mul: "f32[2][1]cpu" = torch.ops.aten.mul.Tensor(x, y);  x = None\n'
        "        sort = torch.ops.aten.sort.default(mul);  mul = None\n"
        '        getitem: "f32[2][1]cpu" = sort[0];  sort = None\n'
    )
    assert left_to_eager(tmp_path) == {"aten.sort.default": 1, "getitem": 1}
    assert left_to_eager(None) == {}


def test_only_operators_with_a_reason_may_stay_in_eager() -> None:
    job = Job("accuracy", "bert", "cpp")
    assert accuracy.of_fallbacks(job, {}, []).holds
    assert not accuracy.of_fallbacks(job, {"aten.sort.default": 2}, []).holds
    assert accuracy.of_fallbacks(job, {"aten.sort.default": 2}, []).note == "aten.sort.default x2"


def test_a_part_that_could_not_be_compiled_counts_as_left_to_eager() -> None:
    with troubles() as found:
        warnings.warn(
            "KeelError[compile-raised]: acme could not compile p0.\n  acme: ValueError: no\nmore",
            KeelWarning,
            stacklevel=1,
        )
    assert found == ["KeelError[compile-raised]: acme could not compile p0.;   acme: ValueError: no"]
    assert not accuracy.of_fallbacks(Job("accuracy", "bert", "cpp"), {}, found).holds


def test_inductors_log_is_read_without_library_calls() -> None:
    log = (
        "[__inductor_metrics] {'num_bytes_accessed': 99, "
        "'nodes_num_elem': [(FusedSchedulerNode(nodes=op0_op1), 10), "
        "(ExternKernelSchedulerNode(name='op2'), 50), (SchedulerNode(name='op3'), 3), "
        "(NopKernelSchedulerNode(name='op4'), 0)], 'node_runtimes': [(SchedulerNode(name='op3'), 7)]}"
    )
    assert memory_traffic.inductors(log) == [40, 12]


def test_keels_launch_lists_are_read_without_library_calls(tmp_path: Path) -> None:
    (tmp_path / "00-inference").mkdir()
    (tmp_path / "00-inference" / "part0-launches.json").write_text(
        json.dumps([{"kind": "kernel", "bytes": 64}, {"kind": "extern", "bytes": 900}, {"kind": "kernel", "bytes": 8}])
    )
    assert memory_traffic.keels(tmp_path) == [64, 8]


def test_the_report_says_what_holds(tmp_path: Path) -> None:
    bars = [
        Criterion("a", 1.5, "<= 2", True),
        Criterion("b", None, "<= 2", False, "died."),
        Criterion("c", 3.0, "shown", None),
    ]
    console = Console(width=100, file=io.StringIO(), record=True)
    report.show(console, bars)
    text = console.export_text()
    assert "died." in text
    assert "1 bars hold, 1 fall short, 1 figures without a target." in text
    report.write(tmp_path / "bars.json", bars, 1.0)
    record = json.loads((tmp_path / "bars.json").read_text())
    assert [b["name"] for b in record["bars"]] == ["a", "b", "c"]
    assert {"name", "value", "target", "holds"} <= set(record["bars"][0])
    assert record["machine"]["torch"]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--model", "vgg"], "there is no model 'vgg'"),
        (["--part", "speed"], "there is no part 'speed'"),
        (["--suite", "all"], "there is no suite 'all'"),
        (["--mode", "eval"], "there is no mode 'eval'"),
        (["--suite", "cpu", "--part", "run"], "there is no part 'run'; there are speed-cpu"),
        (["--suite", "gpu", "--precision", "fp8"], "there is no precision 'fp8'; there are fp32, bf16"),
        (["--suite", "gpu", "--batch", "2"], "there is no batch '2'; there are throughput, 1"),
    ],
)
def test_unknown_names_are_answered_with_the_known(option: list[str], said: str) -> None:
    result = CliRunner().invoke(app, option)
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("options", "wanted"),
    [([], ("cpp", "cpu", 1)), (["--suite", "cpu"], ("cpp", "cpu", 2)), (["--suite", "gpu"], ("triton", "cuda", 1))],
)
def test_a_suite_has_options_of_its_own(
    options: list[str], wanted: tuple[str, str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[Selection] = []

    def plan(parts: object, selection: Selection) -> list[Job]:
        chosen.append(selection)
        return []

    monkeypatch.setattr("keel_bench.cli.plan", plan)
    CliRunner().invoke(app, options)
    assert [(c.backend, c.device, c.threads) for c in chosen] == [wanted]


def test_the_command_ends_with_the_bars(tmp_path: Path) -> None:
    file = tmp_path / "bars.json"
    result = CliRunner().invoke(
        app,
        [
            "--backend",
            "eager",
            "--scale",
            "tiny",
            "--model",
            "gpt2",
            "--mode",
            "inference",
            "--part",
            "accuracy",
            "--rounds",
            "1",
            "--json",
            str(file),
        ],
    )
    assert result.exit_code == 0, result.output
    assert "3 bars hold, 0 fall short" in result.output
    assert len(json.loads(file.read_text())["bars"]) == 3
