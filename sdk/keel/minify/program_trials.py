"""What trial processes do with one program."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from keel.errors import message_of
from keel.events import EventLog
from keel.minify.failure import Failure, Trial, compiled, observe, settings_of, wrong_type
from keel.minify.graph_program import Program, evaluate, fresh, node_values
from keel.minify.judged_program import wrong_result
from keel.minify.swapped_stages import swapped


def attempt(trial: Trial, say: Callable[[str], None]) -> Failure:
    """How a program fails on its backends, with a stage of them swapped if the trial says so."""
    torch.manual_seed(0)
    return observe(trial, swapped(settings_of(trial.subject, trial.fuel), trial.swap), say)


@dataclass(frozen=True)
class Facts:
    """What is known about the backends of a subject: those that take loops, and the lowest ``level`` of each that has
    such an option. If a program compiles: the stage before backends at which it is already wrong, if any, with a
    sentence, and the backends that run parts.
    """

    loop_level: tuple[str, ...] = ()
    levels: tuple[tuple[str, Any], ...] = ()
    stage: str = ""
    sentence: str = ""
    owners: tuple[str, ...] = ()


def backend_facts(trial: Trial, say: Callable[[str], None]) -> Facts:
    """The facts that are known without compiling, which may end the process."""
    backends = settings_of(trial.subject, trial.fuel).backends
    levels = tuple(
        (f"{b.name}.{o.name}", o.choices[0]) for b in backends for o in b.options if o.name == "level" and o.choices
    )
    loops = tuple(b.name for b in backends if b.target is not None)
    return Facts(loops, levels)


def facts(trial: Trial, say: Callable[[str], None]) -> Facts:
    """The facts about a program. A program that does not compile has those of its backends alone."""
    settings, known = settings_of(trial.subject, trial.fuel), backend_facts(trial, say)
    log = EventLog()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compiled(trial.program, settings, log)
        except Exception:
            return known
    graph = log.graphs[0]
    stage, sentence = _wrong_before_backends(trial.program, graph.captured, graph.gm)
    owners = tuple(dict.fromkeys(part.owner for part in graph.parts))
    loops = tuple(n for n in known.loop_level if n in owners)
    return replace(known, stage=stage, sentence=sentence, owners=owners, loop_level=loops)


def _wrong_before_backends(program: Program, captured: fx.GraphModule, legalized: fx.GraphModule) -> tuple[str, str]:
    """The stage after which the graph is wrong when eager PyTorch runs it, with a sentence; empty if it is right."""
    for number, inputs in enumerate(program.inputs):
        for gm, stage in ((captured, "capture"), (legalized, "decomposition")):
            try:
                with torch.no_grad():
                    results = list(gm(*map(fresh, inputs)))
            except Exception as e:
                return stage, f"Eager PyTorch cannot run the graph after this stage: {message_of(e)[:200]}"
            want = evaluate(program, *inputs)
            if (failure := wrong_type(number, results, want)) is not None:
                return stage, failure.sentence
            if (wrong := wrong_result(program, inputs, results)) is not None:
                return stage, wrong.sentence
        if sentence := _wrong_rule(legalized, inputs):
            return "type rule", sentence
    return "", ""


def _wrong_rule(gm: fx.GraphModule, inputs: Sequence[Any]) -> str:
    """A sentence about the first value whose type is not the type that the graph promises."""
    with torch.no_grad():
        values = node_values(gm, inputs)
    for node, value in values.items():
        promised = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not isinstance(promised, torch.Tensor):
            continue
        if value.dtype != promised.dtype or (value.dim() != promised.dim()) or _other_sizes(value, promised):
            have, want = f"{value.dtype} {list(value.shape)}", f"{promised.dtype} {list(promised.shape)}"
            return f"%{node.name} = {node.target} is {have}, and its type says {want}."
    return ""


def _other_sizes(value: torch.Tensor, promised: torch.Tensor) -> bool:
    return any(isinstance(n, int) and n != m for n, m in zip(promised.shape, value.shape, strict=True))
