"""Collects the operator calls that PyTorch's OpInfos make, forward and backward, as samples for operators without an
OpInfo.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from keel.torch_adapter.universe import examples, names, supports_autograd

HarvestedCall = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
LARGE, MOST = 400, 24
"""Calls with a tensor of more than ``LARGE`` elements are skipped, and so are calls of an operator after the first
``MOST``.
"""


def calls(overloads: frozenset[Callable[..., Any]]) -> Iterator[HarvestedCall]:
    """Calls of the ``overloads`` overloads with small tensors, in a reproducible order. Takes minutes."""
    listener = _Listener(overloads)
    for name in names():
        if name in _ABORTS:
            continue
        for example in examples(name, grad=supports_autograd(name), most=12):
            with listener:
                try:
                    results = [r for r in example.fn(*example.inputs) if r.requires_grad]
                    torch.autograd.backward([r.sum() for r in results])
                except Exception:  # an OpInfo may be for errors, or for other devices
                    continue
        yield from listener.found
        listener.found.clear()


_ABORTS = ("sparse.sampled_addmm", "sparse.mm.reduce")
"""OpInfos whose backward is known to end the process."""


class _Listener(TorchDispatchMode):
    def __init__(self, overloads: frozenset[Callable[..., Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.wanted, self.found = overloads, list[HarvestedCall]()
        self.counts: Counter[Callable[..., Any]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self.wanted and self.counts[func] < MOST:
            tensors = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
            if all(t.layout is torch.strided and t.numel() <= LARGE for t in tensors):
                self.counts[func] += 1
                copied = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), (tuple(args), dict(kwargs)))
                self.found.append((func, *copied))
        return func(*args, **kwargs)
