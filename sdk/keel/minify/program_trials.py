"""What trial processes do with one program."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from keel.errors import message_of
from keel.events import EventLog
from keel.minify.error_budget import judged
from keel.minify.failure import Failure, Trial, compiled, observe, settings_of, wrong_type
from keel.minify.graph_program import Program, evaluate, fresh, node_values
from keel.minify.swapped_stages import swapped


def attempt(trial: Trial, say: Callable[[str], None]) -> Failure:
    """How a program fails on its backends, with a stage of them swapped if the trial says so."""
    torch.manual_seed(0)
    return observe(trial, swapped(settings_of(trial.subject, trial.fuel), trial.swap), say)


@dataclass(frozen=True)
class Facts:
    """What is known about the compilation of a program: the stage before backends at which it is already wrong, if any,
    with a sentence; the backends that run parts, those of them that take loops, and the lowest ``level`` of each that
    has such an option.
    """

    stage: str = ""
    sentence: str = ""
    owners: tuple[str, ...] = ()
    loop_level: tuple[str, ...] = ()
    levels: tuple[tuple[str, Any], ...] = ()


def facts(trial: Trial, say: Callable[[str], None]) -> Facts:
    """The facts about a program that compiles."""
    settings = swapped(settings_of(trial.subject, trial.fuel), trial.swap)
    log = EventLog()
    levels = tuple(
        (f"{b.name}.{o.name}", o.choices[0])
        for b in settings.backends
        for o in b.options
        if o.name == "level" and o.choices
    )
    loops = tuple(b.name for b in settings.backends if b.target is not None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compiled(trial.program, settings, log)
        except Exception:
            return Facts(owners=tuple(b.name for b in settings.backends), loop_level=loops, levels=levels)
    graph = log.graphs[0]
    stage, sentence = _wrong_before_backends(trial.program, graph.captured, graph.gm)
    owners = tuple(dict.fromkeys(part.owner for part in graph.parts))
    return Facts(stage, sentence, owners, tuple(n for n in loops if n in owners), levels)


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
            if (judgment := judged(program, inputs, results)) is not None:
                return stage, judgment.sentence
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
