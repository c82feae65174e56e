"""Where the time of a step goes, of profiles made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keel import Cost
from keel.profile.kernel_times import KernelTime, StepTimes, step_times
from keel.profile.part_work import PartWork, Roof, Work, roof, total
from keel.profile.profile_record import GraphRecord, ProfiledStep

from .records import F32, FIRST, LAST, SHEET, STEP, record, span


def times(seconds: float = 16e-3, *steps: ProfiledStep) -> StepTimes:
    made = record()
    return step_times(seconds, steps or made.profiled, made.graphs, made.sheets, made.last_resorts)


def kernel(found: StepTimes, name: str) -> KernelTime:
    [one] = [k for k in found.kernels if k.name == name]
    return one


def test_kernels_and_the_host_add_up_to_the_step() -> None:
    found = times()
    assert found.busy == pytest.approx(9.3e-3)  # 2 + 2 + 1 + 0.3 + 1 + 2 + 1
    assert found.busy == pytest.approx(sum(k.seconds for k in found.kernels))
    assert found.busy + found.inside + found.outside == pytest.approx(found.seconds)


def test_the_hosts_shares_are_those_of_the_profile() -> None:
    found = times()
    assert found.host == pytest.approx(6.7e-3) and found.profiled == 20e-3
    assert found.outside == pytest.approx(6.7e-3 * 7 / 10.7)  # 20 less graphs of 7 and 5 and an operator of 1
    assert found.between == pytest.approx(6.7e-3 * 3 / 10.7)  # from 9 to 13 less an operator of 1


def test_a_machine_that_was_busier_without_the_profiler_scales_kernels() -> None:
    found = times(40e-3)
    assert found.busy == pytest.approx(18.6e-3) and kernel(found, "aten::nonzero").seconds == pytest.approx(2e-3)
    assert found.busy + found.inside + found.outside == pytest.approx(40e-3)


def test_kernels_longer_than_the_step_leave_nothing_to_the_host() -> None:
    found = times(5e-3)
    assert (found.host, found.inside, found.outside, found.between) == (0.0, 0.0, 0.0, 0.0)


def test_kernels_that_do_the_same_for_several_layers_are_one_row_with_their_roof() -> None:
    gelu = kernel(times(), "k_1 gelu")
    assert (gelu.backend, gelu.module, gelu.calls, gelu.seconds) == ("acme", "layer.*", 2, pytest.approx(4e-3))
    assert gelu.roof == Roof(pytest.approx(2e-3), "memory") and gelu.above_roof == pytest.approx(2e-3)
    assert kernel(times(), "mm_3").roof == Roof(pytest.approx(5e-4), "arithmetic")


def test_a_last_resort_is_seen_by_operators_and_has_no_roof_without_a_sheet() -> None:
    sort = kernel(times(), "aten::sort")
    assert (sort.backend, sort.calls, sort.bytes, sort.roof) == ("eager", 2, 3e3, None)
    assert sort.above_roof == 0.0


def test_copies_of_a_part_are_moves_and_those_of_a_library_are_its_own() -> None:
    copy = kernel(times(), "aten::copy_")
    assert copy.is_move and copy.calls == 1 and copy.seconds == pytest.approx(3e-4)


def test_launches_are_those_of_compiled_graphs() -> None:
    assert times().launches == 6


def test_a_part_of_a_compiler_that_shows_nothing_is_one_kernel() -> None:
    part = PartWork("keel.other: part p0", "other", Work(1e6))
    step = ProfiledStep(3e-3, (span(FIRST, 0, 3, span("keel.other: part p0", 1, 3, span("aten::mm", 1, 2))),))
    found = step_times(3e-3, (step,), (GraphRecord(FIRST, (part,)),), {"other": SHEET}, ("eager",))
    [one] = found.kernels
    assert (one.name, one.seconds) == ("part p0", pytest.approx(2e-3)) and one.roof == Roof(1e-3, "memory")


def test_a_loop_level_part_without_launches_runs_nothing() -> None:
    part = PartWork("keel.acme: part p0", "acme", Work(1e6), launches=())
    step = ProfiledStep(3e-3, (span(FIRST, 0, 3, span("keel.acme: part p0", 1, 3)),))
    assert step_times(3e-3, (step,), (GraphRecord(FIRST, (part,)),), {}, ()).kernels == ()


def test_kernels_of_an_accelerator_overlap_and_the_host_is_what_they_leave() -> None:
    part = replace(record().graphs[0].parts[0], is_on_host=False)
    inside = (
        span("keel.acme layer.0: k_1 gelu", 1, 1.1, launched=4),
        span("keel.acme layer.1: k_1 gelu", 1.1, 1.2, launched=3),
        span("keel.acme layer.1: mm_3", 1.2, 1.3, launched=1),
    )
    device = ((2e-3, 6e-3), (5e-3, 8e-3), (8.5e-3, 9.5e-3))
    step = ProfiledStep(10e-3, (span(FIRST, 0.5, 2, span("keel.acme layer: part p0", 0.6, 1.9, *inside)),), device)
    found = step_times(10e-3, (step,), (GraphRecord(FIRST, (part,)),), {"acme": SHEET}, ())
    assert found.busy == pytest.approx(7e-3) and found.host == pytest.approx(3e-3)
    assert kernel(found, "k_1 gelu").seconds == pytest.approx(7e-3)


def test_the_sheet_of_a_last_resort_is_about_the_host() -> None:
    part = replace(record().graphs[1].parts[0], is_on_host=False)
    step = ProfiledStep(9e-3, (span(FIRST, 0, 9, span(LAST, 1, 8, span("aten::sort", 1, 2, launched=5))),), ((2, 3),))
    found = step_times(9e-3, (step,), (GraphRecord(FIRST, (part,)),), {"eager": SHEET}, ("eager",))
    assert kernel(found, "aten::sort").roof is None and kernel(found, "aten::sort").seconds == pytest.approx(5e-3)


def test_graphs_whose_parts_have_the_same_names_are_told_apart() -> None:
    name = "keel.acme: part p0"
    inner = span("keel.acme: mm", 0, 1)
    graphs = [GraphRecord(f"keel inference graph {n}/0", (_part(name, 1e6 * (n + 1)),)) for n in range(2)]
    spans = [span(g.name, 2 * n, 2 * n + 1, span(name, 2 * n, 2 * n + 1, inner)) for n, g in enumerate(graphs)]
    found = step_times(4e-3, (ProfiledStep(4e-3, tuple(spans)),), graphs, {"acme": SHEET}, ())
    assert sorted(k.bytes or 0 for k in found.kernels) == [1e6, 2e6]


def _part(name: str, moved: float) -> PartWork:
    from keel.profile.part_work import Launch

    return PartWork(name, "acme", Work(moved), launches=(Launch("keel.acme: mm", Work(moved)),))


def test_a_dtype_without_a_rate_runs_at_the_slowest() -> None:
    sheet = Cost(flops={F32: 1e9}, scalars=1e9, bandwidth=1e12)
    import torch

    assert roof(Work(1.0, {torch.float64: 1e9}), sheet) == Roof(1.0, "arithmetic")
    assert total([Work(1.0, {F32: 2.0}), Work(3.0, {F32: 4.0})]) == Work(4.0, {F32: 6.0})


def test_the_step_of_the_records_is_as_described() -> None:
    assert STEP.spans[0].seconds == pytest.approx(18e-3)
