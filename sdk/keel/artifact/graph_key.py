"""The key of a compiled graph: a text of everything that compiling it depends on."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields

import torch
from torch import fx

from keel import dump
from keel.cache import package_fingerprint
from keel.extras import missing
from keel.graph.deterministic import is_filled
from keel.graph.module_paths import module_path
from keel.plugin import Backend, Support
from keel.runtime.part_context import constants_of
from keel.serialize.codec import NotSerializable
from keel.serialize.save import numbers_of
from keel.settings import Settings
from keel.torch_adapter import Captured, facts_of, real_tensors


def graph_key(captured: Captured, settings: Settings, *, paths: bool = True) -> tuple[str, ...]:
    """The key of what ``settings`` compile a captured graph to. Without ``paths``, the paths of its modules are not in
    it. Raises NotSerializable, with the reason, if that may depend on more than a text can say.
    """
    return *settings_key(settings), "\n".join(_graph(captured, paths))


def settings_key(settings: Settings) -> tuple[str, str]:
    """The key of what does not depend on the graph: the environment, and the settings with their backends. Raises
    NotSerializable, with the reason, if compiling may depend on more than a text can say.
    """
    return _environment(), _settings(settings)


def compiled_by(backends: Sequence[Backend]) -> tuple[str, ...]:
    """What a compiled graph runs on: Keel, PyTorch, the processor, and the fingerprints of its backends. Raises
    NotSerializable if a backend has none.
    """
    return _versions(), *(f"{backend.name} {_fingerprint(backend)}" for backend in backends)


def _environment() -> str:
    """Versions, and switches of PyTorch that decide what its kernels do."""
    switches = (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), is_filled())
    return "\n".join(map(str, (_versions(), *switches, missing("placement"))))


def _versions() -> str:
    """Keel, PyTorch, and the kind of the processor."""
    versions = (package_fingerprint("keel"), torch.__version__, torch.version.git_version)
    return "\n".join(map(str, (*versions, platform.machine(), torch.backends.cpu.get_cpu_capability())))


def _settings(settings: Settings) -> str:
    if settings.fuel is not None:
        raise NotSerializable("The number of fusions is limited.")
    if settings.placement == "measured":
        raise NotSerializable("Its placement is measured in the first calls.")
    facts = (settings.mode, settings.strict, settings.placement, settings.freeze, settings.options, settings.buckets)
    return "\n".join([repr((facts, settings.pins)), *map(_backend, settings.backends)])


def _fingerprint(backend: Backend) -> str:
    if backend.fingerprint is None:
        raise NotSerializable(f"{backend.name} has no fingerprint.")
    text = backend.fingerprint()
    if not isinstance(text, str) or not text:
        raise NotSerializable(f"The fingerprint of {backend.name} is {text!r:.80}, not a text.")
    return text


def _backend(backend: Backend) -> str:
    text = _fingerprint(backend)
    facts = {f.name: _fact(getattr(backend, f.name)) for f in fields(backend) if f.name not in _NOT_FACTS}
    if (target := backend.target) is not None:
        facts["target"] = " ".join(map(_name, (target.render, target.build, target.compile, target.load)))
    return repr((facts, text))


_NOT_FACTS = frozenset(("probe", "warm_up", "fingerprint", "target"))
"""The fields of a backend that do not say how it compiles."""


def _fact(value: object) -> str:
    """A field of a backend. A copy of a backend with another function has the fingerprint of the original, so functions
    differ if they come from different places.
    """
    if callable(value) or isinstance(value, Support):
        return _name(value)
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))  # of the functions of a data sheet


def _name(function: object) -> str:
    """Where a function comes from."""
    kind = type(function)
    return f"{getattr(function, '__module__', kind.__module__)}.{getattr(function, '__qualname__', kind.__qualname__)}"


def _graph(captured: Captured, paths: bool) -> Iterator[str]:
    gm = captured.gm
    for graph in (m for m in gm.modules() if isinstance(m, fx.GraphModule)):
        for node in graph.graph.find_nodes(op="get_attr"):
            if not isinstance(getattr(graph, str(node.target), None), fx.GraphModule):
                raise NotSerializable(f"It has the object {node.target}.")
    flags = (captured.shares, captured.frozen, torch.backends.mkldnn.enabled)
    yield repr((captured.kind, captured.static, captured.overwrites, sorted(captured.donated), flags))
    yield repr([(name, each.kind, each.name, each.written) for name, each in captured.stored.items()])
    yield repr([(name, str(tensor.device)) for name, tensor in captured.constants.items()])
    yield from _values((n, c.value) for n, c in constants_of(captured).items() if c.value is not None)
    yield dump.graph_text(gm)
    if paths:
        yield "\n".join(map(module_path, gm.graph.nodes))
    yield repr([(name, vars(facts)) for name, facts in facts_of(numbers_of(gm)).items()])


def _values(constants: Iterable[tuple[str, torch.Tensor]]) -> Iterator[str]:
    """The contents of the constants that backends may compute with."""
    for name, tensor in constants:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            raise NotSerializable(f"The constant {name} is a {type(tensor).__name__} of layout {tensor.layout}.")
        with real_tensors():
            content = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
            hashed = hashlib.sha256(content.numpy().data).hexdigest()
        yield f"{name} {tensor.dtype} {[*tensor.shape]} {hashed}"
