"""What would make a model faster: estimates of the seconds that each change would save, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from keel.errors import count
from keel.profile.kernel_times import KernelTime
from keel.profile.profile_facts import KEEL, ProfileFacts
from keel.reports import duration, short, size

SHOWN = 5
"""The most suggestions of a report."""
LEAST = 0.005
"""The least share of a step that a suggestion saves."""
FASTER = 0.95
"""Another compiler is suggested if its step takes at most this share of Keel's."""


@dataclass(frozen=True)
class Suggestion:
    """What takes ``seconds`` of each step that a change would save, or ``once`` when the program starts; what it is
    about; and what to ``do``.
    """

    seconds: float
    what: str
    do: str
    once: bool = False


def suggestions(facts: ProfileFacts) -> tuple[Suggestion, ...]:
    """The changes that would save most, at most ``SHOWN``. What is saved only once comes last."""
    useful = [s for s in estimates(facts) if s.once or s.seconds >= LEAST * facts.times.seconds]
    return tuple(sorted(useful, key=lambda s: (s.once, -s.seconds))[:SHOWN])


def estimates(facts: ProfileFacts) -> Iterator[Suggestion]:
    """All changes that would save something, or nothing."""
    yield from _breaks(facts)
    yield from _recompilations(facts)
    yield from _fallbacks(facts)
    yield from _moves(facts)
    yield from _host(facts)
    yield from _kernels(facts)
    yield from _compilers(facts)


def _breaks(facts: ProfileFacts) -> Iterator[Suggestion]:
    """The host's time between graphs, in equal shares. A function that is not compiled has no graphs to be between."""
    times = facts.times
    for each in facts.breaks:
        seconds = (times.outside if each.is_skipped else times.between) / len(facts.breaks)
        what = "Dynamo does not compile the function" if each.is_skipped else "The graph breaks"
        yield Suggestion(seconds, f"{what} at {each.line}: {each.reason}", each.hint or "Move that out of the model.")


def _recompilations(facts: ProfileFacts) -> Iterator[Suggestion]:
    for each in facts.recompilations:
        what = (
            f"{each.function} is compiled {count(each.times, 'more time')} because of {each.line}: {each.reasons[-1]}."
        )
        do = "Keep constant what the guard tests; a size that changes needs dynamic=True or torch._dynamo.mark_dynamic."
        yield Suggestion(each.seconds, what, do, once=True)


def _fallbacks(facts: ProfileFacts) -> Iterator[Suggestion]:
    for each in facts.fallbacks:
        where = f" at {each.lines[0]}" if each.lines else ""
        what = f"{each.owner} runs {short(each.operator)}{where}, because {each.backend} refuses it: {each.reason}"
        nearest = f" It would take {each.nearest}." if each.nearest else ""
        yield Suggestion(
            each.seconds, what, f"Use operators that {each.backend} takes, or add this one to it.{nearest}"
        )


def _moves(facts: ProfileFacts) -> Iterator[Suggestion]:
    """Copies in compiled graphs and out of them."""
    moves = facts.moves
    if not moves:
        return
    moved = sum(k.bytes or 0.0 for k in moves)
    amount = f" ({size(int(moved))})" if moved else ""
    places = ", ".join(dict.fromkeys(named(k) for k in moves[:3]))
    what = f"A step copies or converts {count(round(sum(k.calls for k in moves)), 'tensor')}{amount}: {places}."
    do = "Make these tensors in the dtype, the layout and on the device in which they are used."
    yield Suggestion(sum(k.seconds for k in moves), what, do)


def _host(facts: ProfileFacts) -> Iterator[Suggestion]:
    times = facts.times
    if times.launches:
        each = duration(times.inside / times.launches)
        what = f"The host takes {each} for each of {times.launches:.0f} launches inside compiled graphs."
        do = 'Run more samples in a step, or let an accelerator replay the graphs: mode="reduce-overhead".'
        yield Suggestion(times.inside, what, do)
    rest = times.outside - sum(s.seconds for s in _breaks(facts))
    if rest > 0:
        what = "The host works outside of compiled graphs: guards, wrappers and the Python of the model."
        yield Suggestion(rest, what, "Compile a larger function, or export the model: a package checks no guards.")


def _kernels(facts: ProfileFacts) -> Iterator[Suggestion]:
    """Kernels above their roofs, but for those that other suggestions are about."""
    fell_back = {each.owner for each in facts.fallbacks}
    for kernel in facts.times.kernels:
        if kernel.roof is None or kernel.is_move or kernel.backend in fell_back or not kernel.above_roof:
            continue
        ratio = kernel.seconds / kernel.roof.seconds if kernel.roof.seconds else 0.0
        limit = "memory traffic" if kernel.roof.bound == "memory" else "arithmetic"
        what = f"{named(kernel)} takes {ratio:.3g} times its roof, which is that of {limit}."
        yield Suggestion(kernel.above_roof, what, _advice(kernel))


def _advice(kernel: KernelTime) -> str:
    if kernel.name.startswith("k_"):
        return f"Show the vendor of {kernel.backend} the kernel: KEEL_DUMP=dir writes its loops and its source."
    return f"Use larger sizes, multiples of 64 or a smaller dtype, or tell the vendor of {kernel.backend}."


def _compilers(facts: ProfileFacts) -> Iterator[Suggestion]:
    own = facts.medians[KEEL]
    ways = {
        "inductor": "Run Inductor as a plugin, alone or next to others: --backends inductor,eager.",
        "eager": 'Time placements against eager PyTorch with placement="measured".',
    }
    for name, do in ways.items():
        if (theirs := facts.medians.get(name, own)) < FASTER * own:
            yield Suggestion(own - theirs, f"{name} takes {duration(theirs)} for a step, Keel {duration(own)}.", do)


def named(kernel: KernelTime) -> str:
    """A kernel with the module that it belongs to."""
    return f"{kernel.name} of {kernel.module}" if kernel.module else kernel.name
