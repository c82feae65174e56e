"""Backends with one defect in layer norm, and a model that has one, for the tests of the reduction."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from keel import Backend, Rule, Support

Change = Callable[[tuple[Any, ...]], tuple[Any, ...]]


def planted(name: str, change: Change) -> Backend:
    """A backend that runs parts in eager PyTorch, except that layer norms return what ``change`` makes of them."""

    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        class Run(fx.Interpreter):
            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                result = super().call_function(target, args, kwargs)
                return change(result) if "layer_norm" in str(target) else result

        return lambda *inputs: tuple(Run(gm).run(*inputs))

    return Backend(name=name, device="cpu", supports=Support((Rule(ops=("*",)),)), compile=compile)


def _raises(result: tuple[Any, ...]) -> tuple[Any, ...]:
    raise RuntimeError("no kernel for 17 rows")


def _dies(result: tuple[Any, ...]) -> tuple[Any, ...]:
    os.abort()


def _leaves(result: tuple[Any, ...]) -> tuple[Any, ...]:
    os._exit(0)


wrong = planted("planted-wrong", lambda result: (result[0] * 1.01, *result[1:]))
nan = planted("planted-nan", lambda result: (result[0] / 0 * 0, *result[1:]))
raises = planted("planted-raises", _raises)
dies = planted("planted-dies", _dies)
leaves = planted("planted-leaves", _leaves)
right = planted("planted-right", lambda result: result)


def model() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A small network with its input."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3), torch.nn.Softmax(-1)
    return torch.nn.Sequential(*layers), (torch.randn(4, 6),)
