"""At which stage the truth is lost: each stage is swapped for its reference, and the failure stays or goes away."""

from __future__ import annotations

from dataclasses import dataclass, replace

from keel.minify.failure import Subject, Trial
from keel.minify.graph_program import Program
from keel.minify.program_trials import Facts, backend_facts, facts
from keel.minify.reduce import Search

KEELS = ("decomposition", "type rule", "lowering", "fusion", "loop transformation", "runtime", "conversion")
"""The stages that are Keel's own."""
MOST_FUEL = 1 << 10
STAGES = {
    "capture": "PyTorch's capture of the model",
    "decomposition": "the decomposition of an operator into others",
    "type rule": "the rule for the type of a result",
    "lowering": "the lowering of an operator to loops",
    "fusion": "the fusion of loops",
    "loop transformation": "a transformation of loops for the target",
    "rendering": "the rendering of a kernel as source",
    "compiler": "the target's compiler, when it optimizes",
    "extern": "a library call of the target",
    "plugin": "the plugin's compiler of graphs",
    "conversion": "the conversion of a plugin's results",
    "runtime": "the runtime: order, aliasing or memory",
}


ROOMS = {
    "keel.runtime": "runtime",
    "keel.launcher": "runtime",
    "keel.schedule.memory_plan": "runtime",
    "keel.schedule.loop_order": "loop transformation",
    "keel.schedule.split_ranges": "loop transformation",
    "keel.schedule.split_reduction": "loop transformation",
    "keel.schedule": "fusion",
    "keel.loops.lower": "lowering",
    "keel.loops.verify": "lowering",
    "keel.loops.interpret": "lowering",
    "keel.loops.expansion": "loop transformation",
    "keel.loops.expansions": "loop transformation",
    "keel.loops.arithmetic_expansions": "loop transformation",
    "keel.loops.elementary_expansions": "loop transformation",
    "keel.loops.legalize_scalars": "loop transformation",
    "keel.spec.rules": "type rule",
    "keel.spec.rules_linalg": "type rule",
    "keel.spec.rules_shape": "type rule",
    "keel.spec.rules_windows": "type rule",
    "keel.spec.ops": "decomposition",
    "keel.graph": "decomposition",
}
"""The stages of rooms and modules. Special ones are before the rooms that contain them. A module that several stages
use has none, so that the stage is that of its caller. If a check of kernels raises, and no swap of a later stage helps,
the lowering made a wrong kernel.
"""


@dataclass(frozen=True)
class Blame:
    """The stage, one of STAGES or '' if no swap tells; a sentence; and the swaps that were made, with what came of
    each, and those that were not made, with the reason.
    """

    stage: str
    sentence: str
    outcomes: tuple[tuple[str, str], ...]
    skipped: tuple[tuple[str, str], ...] = ()


class Swaps:
    """Tries swaps of stages on one program, and notes what comes of them."""

    def __init__(self, search: Search, program: Program) -> None:
        self.search, self.program = search, program
        self.outcomes: dict[str, str] = {}
        self.skipped: dict[str, str] = {}

    def helps(self, swap: str = "", *, fuel: int | None = None, subject: Subject | None = None, name: str = "") -> bool:
        """True if the failure goes away."""
        failure = self.search.failure(self.program, subject, swap, fuel)
        name = name or swap
        if failure.kind == "":
            self.outcomes[name] = "The failure goes away."
        elif failure.key == self.search.key or failure.kind == self.search.key[0]:
            self.outcomes[name] = "The failure stays."
        else:
            self.skipped[name] = f"With it, the program fails in another way: {failure.sentence}"
        return failure.kind == ""

    def optimization(self, known: Facts, skipped: str) -> Blame | None:
        """The target's compiler, if the failure goes away where it does not optimize; ``skipped`` says why that is not
        tried where no backend has a level of optimization.
        """
        if not known.levels:
            self.skipped["optimization"] = skipped
        for option, least in known.levels:
            subject = replace(self.search.subject, options=(*self.search.subject.options, (option, least)))
            if self.helps(subject=subject, name=f"{option}={least}"):
                return self.blame("compiler", f"With {option}={least} the failure goes away.")
        return None

    def blame(self, stage: str, more: str = "") -> Blame:
        sentence = f"The truth is lost in {STAGES[stage]}. {more}".strip() if stage else "No swap of a stage tells."
        return Blame(stage, sentence, tuple(self.outcomes.items()), tuple(self.skipped.items()))


def blame(search: Search, program: Program) -> Blame:
    """The stage that loses the truth of a small program."""
    swaps = Swaps(search, program)
    known = _facts(search, program)
    if known.stage:
        return swaps.blame(known.stage, known.sentence)
    if not swaps.helps("eager parts") and "eager parts" in swaps.outcomes:
        return _of_module(swaps) or swaps.blame("runtime", "Eager PyTorch runs all parts, and the failure stays.")
    if known.loop_level:
        return _in_loops(swaps, known)
    if (compiler := swaps.optimization(known, "The backend has no option `level`.")) is not None:
        return compiler
    if swaps.helps("corrected"):
        return swaps.blame("plugin")
    if search.key[0] in ("wrong", "nan", "type") and "corrected" in swaps.outcomes:
        return swaps.blame("conversion", "The plugin's results are right before Keel converts them.")
    return swaps.blame("plugin")


def _facts(search: Search, program: Program) -> Facts:
    """The facts about a program; those of its backends alone if compiling it ends the process."""
    for ask in (facts, backend_facts):
        outcome = search.process.run(ask, Trial(program, search.subject), seconds=search.seconds)
        if isinstance(outcome.result, Facts):
            return outcome.result
    return Facts()


def _in_loops(swaps: Swaps, known: Facts) -> Blame:
    """The stage of a backend that takes loops."""
    if swaps.helps("separate memory"):
        return swaps.blame("runtime", "It goes away when intermediate tensors share no memory.")
    if swaps.helps("serial"):
        return swaps.blame("runtime", "It goes away when parts are built one after the other.")
    if swaps.helps("eager externs"):
        return swaps.blame("extern")
    if swaps.helps("interpreted"):
        skipped = "The backend has no option `level`, so its compiler counts as rendering."
        if (compiler := swaps.optimization(known, skipped)) is not None:
            return compiler
        return swaps.blame("rendering", "The interpreter of loops runs the same kernels without it.")
    if swaps.helps(fuel=0, name="no fusion"):
        return swaps.blame("fusion", f"Fusion {_first_bad_fusion(swaps)} is the first that shows it.")
    if swaps.helps("unexpanded"):
        return swaps.blame("loop transformation", "It goes away if no scalar operation is expanded for the target.")
    if swaps.helps("plain loops"):
        return swaps.blame("loop transformation", "It goes away if loops are not fitted to the target's limits.")
    return _of_module(swaps) or swaps.blame("lowering")


def _of_module(swaps: Swaps) -> Blame | None:
    """The stage of the innermost module with a stage that an exception passed; None for another failure."""
    for module in swaps.search.failure(swaps.program).modules:
        for room, stage in ROOMS.items():
            if f"{module}.".startswith(f"{room}."):
                return swaps.blame(stage, f"No swap of a stage helps, and {module} raised the error.")
    return None


def _first_bad_fusion(swaps: Swaps) -> int:
    """The number of the first fusion with which the program fails."""
    low, high = 0, 1
    while high < MOST_FUEL and swaps.search.failure(swaps.program, fuel=high).kind == "":
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        right = swaps.search.failure(swaps.program, fuel=middle).kind == ""
        low, high = (middle, high) if right else (low, middle)
    return high


def hardware_free(search: Search, program: Program, stage: str) -> Subject | None:
    """Loops on the host in place of the vendor's device, if a defect of Keel's own shows there too."""
    subject = Subject(("interp",))
    if stage not in KEELS or search.subject == subject:
        return None
    host = replace(program, inputs=tuple(tuple(x.cpu() for x in each) for each in program.inputs))
    return subject if search.failure(host, subject).kind == search.key[0] else None
