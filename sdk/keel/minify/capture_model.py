"""The graphs of a model, as PyTorch captures them for backends, with the values that they are called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import torch
from torch import Tensor, fx, nn

from keel.errors import KeelError
from keel.explanation import run_backward, with_plugins_for
from keel.graph.decomposed_calls import Decompositions
from keel.minify.failure import Subject, settings_of
from keel.minify.graph_program import Program, program_of
from keel.named_models import called_model
from keel.saved_images import saved_images
from keel.settings import Settings
from keel.torch_adapter import Boxed, Captured, capture, flat, unwrapped

FAR = 1e-2
"""How far results of the captured graphs may be from eager PyTorch's, relative to their size."""
FAINT = 1e-2
"""A result this much smaller than the largest one may be rounding errors alone, such as the gradient of a bias of keys:
its size counts as this much of the largest.
"""


@dataclass(frozen=True)
class Model:
    """A model on a command line, and whether its backward pass is run."""

    what: str
    training: bool = False


@dataclass(frozen=True)
class Recorded:
    """The graphs of a model in the order of their first calls, a sentence about each graph that has no text, and a
    sentence about results that differ from eager PyTorch although PyTorch itself ran the graphs.
    """

    programs: tuple[Program, ...]
    left_out: tuple[str, ...]
    captured_wrong: str = ""


def record(model: Model, subject: Subject, is_whole: bool, say: Callable[[str], None]) -> Recorded:
    """Runs the model once with its graphs in eager PyTorch. Graphs of training have calls as their decompositions
    where the partitioner of PyTorch may see into calls, unless all calls stay whole.
    """
    fn, args, kwargs = called_model(model.what)
    settings = with_plugins_for(settings_of(subject), fn, args, kwargs)
    programs, left_out = list[Program](), list[str]()
    say("running the model in eager PyTorch")
    state = {name: t.clone() for name, t in fn.state_dict().items()} if isinstance(fn, nn.Module) else {}
    want = _run(fn, args, kwargs, model.training)
    if isinstance(fn, nn.Module):
        fn.load_state_dict(state)
    say("capturing the model")
    able = () if is_whole else settings.backends
    backend = partial(_recorder, settings, Decompositions(able), programs, left_out)
    have = _run(fn, args, kwargs, model.training, torch.compile(fn, backend=backend))
    return Recorded(tuple(programs), tuple(left_out), _difference(want, have))


def _run(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    training: bool,
    compiled: Callable[..., Any] | None = None,
) -> list[Tensor]:
    torch.manual_seed(0)
    run = fn if compiled is None else compiled  # a module may have a length
    if not training:
        with torch.no_grad():
            return _tensors(run(*args, **kwargs))
    results = run(*args, **kwargs)
    return [*_tensors(results), *run_backward(results, fn, tuple(args), kwargs)]


def _recorder(
    settings: Settings,
    decompositions: Decompositions,
    programs: list[Program],
    left_out: list[str],
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
) -> Callable[..., Any]:
    """A backend of ``torch.compile`` that notes the graphs and runs them in eager PyTorch."""

    def compiler(captured: Captured) -> Boxed:
        names = {n.name: k for k, n in enumerate(captured.gm.graph.find_nodes(op="placeholder"))}
        called = list[bool]()

        def run(inputs: list[Any]) -> Sequence[Any]:
            values = [*inputs, *(captured.constants[name] for name in list(names)[len(inputs) :])]
            inputs.clear()
            if not called:
                called.append(True)
                try:
                    programs.append(program_of(captured.gm, values, captured.kind))
                except KeelError as e:
                    left_out.append(str(e))
            results: Sequence[Any] = captured.gm(*values)
            return tuple(results)

        return run

    images = partial(saved_images, backends=settings.backends, by_cost=settings.placement != "order")
    with unwrapped():
        return capture(gm, example_inputs, compiler, images, decompositions)


def _tensors(value: Any) -> list[Tensor]:
    return [v for v in flat((value,), {}) if isinstance(v, Tensor)]


def _difference(want: Sequence[Tensor], have: Sequence[Tensor]) -> str:
    largest = max((_mean(x) for x in want if x.is_floating_point()), default=0.0)
    for k, (x, y) in enumerate(zip(want, have, strict=False)):
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"Result {k} of the captured graphs is {y.dtype} {list(y.shape)}, not {x.dtype} {list(x.shape)}."
        if x.is_floating_point() and x.numel():
            a, b = x.detach().double(), y.detach().double()
            off = _mean(b - a, a.isfinite()) / max(_mean(a), FAINT * largest, 1e-30)
            if off > FAR or bool((b.isnan() & a.isfinite()).any()):
                return f"Result {k} of the captured graphs is off by {off:.2g} of its size."
    return ""


def _mean(x: Tensor, counted: Tensor | None = None) -> float:
    """The root of the mean square of the elements that are counted, or are finite."""
    some = x.detach().double()[x.isfinite() if counted is None else counted]
    return float(some.norm()) / sqrt(max(some.numel(), 1))
