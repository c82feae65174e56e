"""A report on a model's speed as text, in 80 columns. It needs rich, which the extra ``cli`` installs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from keel.errors import count
from keel.profile.kernel_times import KernelTime
from keel.profile.profile_facts import KEEL, MemoryUse, ProfileFacts
from keel.profile.suggestions import Suggestion
from keel.reports import duration, short, size

ROWS = 20
"""The most kernels that are printed."""
WIDEST = 22
"""The most columns of a name or path in a table."""
BOUNDS = {"memory": "bytes", "arithmetic": "flops"}
LEVELS = "▁▂▃▄▅▆▇█"
BARS = 60
"""The columns of memory over time."""


def document(facts: ProfileFacts, suggestions: Sequence[Suggestion]) -> RenderableType:
    """The report as a rich document."""
    return Group(
        *_step(facts),
        *_suggestions(suggestions),
        *_breaks(facts),
        *_compilations(facts),
        *_fallbacks(facts),
        *_copies(facts),
        *_kernels(facts),
        *(line for use in facts.memory for line in _memory(use)),
        *map(escape, facts.notes),
    )


def step_line(facts: ProfileFacts) -> str:
    """The medians of a step by compiler."""
    kind = "A training step" if facts.is_training else "A step"
    own = f"{kind} takes {duration(facts.medians[KEEL])} with {', '.join(facts.backends)}"
    others = [f"{duration(seconds)} with {name}" for name, seconds in facts.medians.items() if name != KEEL]
    return f"{', '.join([own, *others])} (medians of {count(facts.steps, 'step')}, in turns)."


def share_line(facts: ProfileFacts) -> str:
    """Where the time of a step goes."""
    times = facts.times

    def share(seconds: float) -> str:
        return f"{duration(seconds)} ({100 * seconds / times.seconds:.0f} %)" if times.seconds else duration(seconds)

    return (
        f"Kernels take {share(times.busy)} of it, the host inside compiled graphs {share(times.inside)}, and outside "
        f"of them {share(times.outside)}. Under the profiler a step takes {duration(times.profiled)}."
    )


def _step(facts: ProfileFacts) -> Iterable[RenderableType]:
    yield f"[bold]{escape(step_line(facts))}[/]"
    yield escape(share_line(facts))


def saving(suggestion: Suggestion) -> str:
    """``1.2 ms a step``, or ``3.1 s once``."""
    return f"{duration(suggestion.seconds)} {'once' if suggestion.once else 'a step'}"


def _suggestions(several: Sequence[Suggestion]) -> Iterable[RenderableType]:
    yield "\n[bold]What would help most[/], by estimate" if several else "\nNothing is found that would help."
    for n, one in enumerate(several, 1):
        yield Padding(f"[bold]{n}. {saving(one)}[/]: {escape(one.what)}", (0, 0, 0, 2))
        yield Padding(escape(one.do), (0, 0, 0, 5))


def _breaks(facts: ProfileFacts) -> Iterable[RenderableType]:
    yield f"\n[bold]{count(len(facts.breaks), 'graph break')}[/]"
    for each in facts.breaks:
        skipped = " The function runs in eager PyTorch." if each.is_skipped else ""
        yield Padding(escape(each.line), (0, 0, 0, 2))
        yield Padding(escape(f"{each.reason}{skipped}"), (0, 0, 0, 4))


def _compilations(facts: ProfileFacts) -> Iterable[RenderableType]:
    again = sum(each.times for each in facts.recompilations)
    yield f"\n[bold]{count(again, 'recompilation')}[/]; compiling once took {duration(facts.first)}"
    if again:
        steps = ", ".join(map(str, facts.compiled_in))
        yield f"  Of {count(facts.ran, 'step')}, those with the numbers {steps} compiled something."
    for each in facts.recompilations:
        yield Padding(escape(each.line), (0, 0, 0, 2))
        reasons = "; ".join(each.reasons[:3])
        text = f"{each.function}, {count(each.times, 'time')}, {duration(each.seconds)}: {reasons}"
        yield Padding(escape(text), (0, 0, 0, 4))


def _fallbacks(facts: ProfileFacts) -> Iterable[RenderableType]:
    yield f"\n[bold]{count(len(facts.fallbacks), 'operator')}[/] on a backend of last resort"
    for each in facts.fallbacks:
        calls = f"{count(round(each.calls), 'call')}, {duration(each.seconds)} a step"
        text = f"{short(each.operator)} on {each.owner}: {calls}. {each.reason}"
        yield Padding(escape(text), (0, 0, 0, 2))
        yield from (Padding(escape(line), (0, 0, 0, 4)) for line in each.lines)


def _copies(facts: ProfileFacts) -> Iterable[RenderableType]:
    moves = facts.moves
    seconds, calls = sum(k.seconds for k in moves), round(sum(k.calls for k in moves))
    yield f"\n[bold]{count(calls, 'tensor')}[/] copied or converted in a step, in {duration(seconds)}"
    for each in facts.crossings:
        yield escape(f"  {size(int(each.bytes))} pass from {each.source} to {each.target} in the {each.graph}.")


def _kernels(facts: ProfileFacts) -> Iterable[RenderableType]:
    kernels = facts.times.kernels
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("kernel", overflow="fold", max_width=WIDEST)
    table.add_column("module", no_wrap=True)
    for name in ("calls", "time", "roof", "times"):
        table.add_column(name, justify="right")
    table.add_column("bound")
    for k in kernels[:ROWS]:
        table.add_row(escape(f"{k.backend or 'eager'} {k.name}"), escape(end(k.module)), f"{k.calls:g}", *figures(k))
    yield ""
    yield table
    if len(kernels) > ROWS:
        rest = sum(k.seconds for k in kernels[ROWS:])
        yield f"{count(len(kernels) - ROWS, 'more kernel')} {duration(rest)} together."


def figures(kernel: KernelTime) -> tuple[str, str, str, str]:
    """The time of a kernel in a step, its roof, how many times the roof it takes, and whether bytes or operations bound
    it; empty if the roof is unknown.
    """
    if kernel.roof is None or not kernel.roof.seconds:
        return duration(kernel.seconds), "", "", ""
    ratio = f"{kernel.seconds / kernel.roof.seconds:.3g}"
    return duration(kernel.seconds), duration(kernel.roof.seconds), ratio, BOUNDS[kernel.roof.bound]


def end(path: str) -> str:
    """The end of a module's path, as much as fits."""
    return path if len(path) <= WIDEST else f"…{path[1 - WIDEST :]}"


def _memory(use: MemoryUse) -> Iterable[RenderableType]:
    at = f", in {use.at}" if use.at else ""
    yield f"\n[bold]Memory of a step on {use.device}[/]: at most {size(use.peak)} more than before it{escape(at)}"
    yield spark(use)


def spark(use: MemoryUse) -> str:
    """Memory over time as a line of bars."""
    end = max(at for at, _ in use.points) or 1.0
    heights, height = [0] * BARS, 0
    values = {min(int(BARS * at / end), BARS - 1): value for at, value in use.points}
    for n in range(BARS):
        height = values.get(n, height)
        heights[n] = height
    top = max(use.peak, 1)
    return "".join(LEVELS[max(0, min(len(LEVELS) - 1, int(len(LEVELS) * h / top)))] for h in heights)
