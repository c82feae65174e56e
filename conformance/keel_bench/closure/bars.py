"""The promises about the operator set, held against what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from keel.opset import MEMBERS, Op
from keel_conformance.report import Criterion, by_need, join_names, percent
from keel_conformance.workers.pool import Outcome

from ..error_metrics import TIMES
from .jobs import Job, Outcomes, Row
from .tolerated import ALLOWED

MOST_OPAQUE = 40
PYTORCHS = ("drawing", "running", "tracing")
"""What a process does before Keel does anything: what it dies of then is PyTorch's."""


def of_members() -> Iterator[Criterion]:
    """What the declarations say by themselves."""
    ops = MEMBERS.values()
    opaque = [op for op in ops if op.kind == "opaque"]
    silent = [op.name for op in opaque if not op.reason]
    yield Criterion(
        "opaque operators",
        len(opaque),
        f"<= {MOST_OPAQUE}",
        len(opaque) <= MOST_OPAQUE,
        join_names(op.name for op in opaque),
    )
    yield Criterion("opaque operators without a reason", len(silent), "0", not silent, join_names(silent))
    primitives = [op for op in ops if op.kind == "primitive"]
    without = [op for op in primitives if op.out is None]
    graphs = [op.name for op in without if is_of_higher_order(op)]
    for what, lacking in (
        ("clauses", [op.name for op in primitives if not op.clauses]),
        ("a type rule", [op.name for op in without if not is_of_higher_order(op)]),
    ):
        yield Criterion(f"primitives without {what}", len(lacking), "0", not lacking, join_names(lacking))
    yield Criterion(
        "primitives of higher order, typed by what they are given", len(graphs), "", None, join_names(graphs)
    )
    count, members = Counter[str](), Counter[str]()
    for op in primitives:
        count[op.family] += len(op.clauses)
        members[op.family] += 1
    for family in sorted(count):
        yield Criterion(f"clauses: {family}", count[family], "", None, f"of {members[family]} primitives")
    yield Criterion("clauses", count.total(), "", None, f"of {len(primitives)} primitives")


def is_of_higher_order(op: Op) -> bool:
    """Whether an operator has no schema, and so no rule: its clauses say the types, by the graphs that it takes."""
    return all(name.startswith("higher_order.") for name in op.overloads)


def of_setting(setting: str, outcomes: Outcomes, what: str) -> Iterator[Criterion]:
    """``what`` names the things measured: OpInfos, models."""
    rows = {job.name: outcome.row for job, outcome in outcomes.items() if outcome.row is not None}
    lost = {job.name: outcome for job, outcome in outcomes.items() if outcome.row is None}
    silent = {n: r for n, r in rows.items() if not r.traced and not r.wrong}
    left_out = sorted(n for n, r in silent.items() if r.left_out)
    untraced = sorted(set(silent) - set(left_out)) + sorted(n for n, o in lost.items() if is_pytorchs(o))
    broken = sorted(n for n, o in lost.items() if not is_pytorchs(o))
    counted = {n: r for n, r in rows.items() if n not in silent}
    inside = [n for n, r in counted.items() if r.closed]
    of, out = len(counted) + len(broken), sorted(set(counted) - set(inside))
    share, closed = f"{len(inside)} of {of} ({percent(len(inside), of)})", bool(of) and len(inside) == of
    yield Criterion(f"{setting}: {what} that end inside", share, "all", closed, join_names([*broken, *out]))
    samples, traced = sum(r.samples for r in rows.values()), sum(r.traced for r in rows.values())
    yield Criterion(f"{setting}: {what} that PyTorch does not trace", len(untraced), "", None, join_names(untraced))
    yield Criterion(
        f"{setting}: {what} of what the operator set leaves out", len(left_out), "", None, join_names(left_out)
    )
    some = sorted(n for n, r in rows.items() if r.left_out and n not in left_out)
    yield Criterion(
        f"{setting}: samples of what it leaves out",
        sum(r.refused for r in rows.values()),
        "",
        None,
        f"also in {join_names(some)}" if some else "",
    )
    yield Criterion(f"{setting}: samples traced", f"{traced} of {samples}", "", None)
    yield of_types(setting, rows)
    if faults := sorted({name for r in rows.values() for name in r.faults}):
        yield Criterion(
            f"{setting}: operators of which PyTorch's fake kernels say wrong types",
            len(faults),
            "",
            None,
            join_names(faults),
        )
    if foreign := sorted({name for r in rows.values() for name in r.foreign}):
        yield Criterion(
            f"{setting}: operators of other packages than PyTorch", len(foreign), "", None, join_names(foreign)
        )
    if any(job.numbers for job in outcomes):
        yield from of_numbers(setting, rows, what)


def is_pytorchs(outcome: Outcome) -> bool:
    return outcome.doing.startswith(PYTORCHS)


def of_types(setting: str, rows: Mapping[str, Row]) -> Criterion:
    wrong = {n: r.mistyped for n, r in rows.items() if r.mistyped}
    typed = sum(r.typed for r in rows.values())
    return Criterion(
        f"{setting}: type rules that disagree",
        sum(map(len, wrong.values())),
        "0",
        not wrong,
        f"of {typed} kinds of calls" + (f": {next(iter(wrong.values()))[0]}" if wrong else ""),
    )


def of_numbers(setting: str, rows: Mapping[str, Row], what: str) -> Iterator[Criterion]:
    judged = sum(r.judged for r in rows.values())
    over = sorted(n for n, r in rows.items() if r.inaccurate and n not in ALLOWED)
    allowed = sorted(n for n, r in rows.items() if r.inaccurate and n in ALLOWED)
    yield Criterion(
        f"{setting}: {what} over {TIMES:g} x eager's error",
        len(over),
        "0 but named exceptions",
        not over,
        f"of {judged} samples"
        + (f"; {join_names(over)}" if over else "")
        + (f"; excepted: {join_names(allowed)}" if allowed else ""),
    )
    unjudged = sorted(n for n, r in rows.items() if r.unjudged)
    yield Criterion(f"{setting}: {what} with samples not compared", len(unjudged), "", None, join_names(unjudged))
    strided = sorted(n for n, r in rows.items() if r.restrided)
    yield Criterion(f"{setting}: {what} with other strides than eager's", len(strided), "", None, join_names(strided))


def outside(outcomes: Iterable[tuple[Job, Outcome]]) -> list[tuple[str, list[str], str]]:
    """Each operator that remains outside: its name, the programs that need it, and why. The most needed come first."""
    return by_need((job.name, o.row.outside) for job, o in outcomes if isinstance(o.row, Row))
