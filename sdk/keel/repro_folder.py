"""``KEEL_REPRO=dir``: a graph that fails is left in a folder, with the values that it was called with. A part that
computes wrong numbers is left there too, if ``KEEL_CHECK=numbers`` notices it.

The folder of a graph is written before the graph is compiled and before its first call, and removed after them, so
that it is there even if the process dies.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from keel.documents import Item, Malformed, bad_file, bytes_of, parsed
from keel.errors import KeelError, KeelWarning, message_of
from keel.events import Event, GraphCompiled, Listener, each_of
from keel.graph.calls import type_of
from keel.graph.size_hints import typical_sizes
from keel.serialize import load_graph, save_graph
from keel.settings import Settings
from keel.symbols import evaluate, free_symbols
from keel.torch_adapter import Boxed, Captured, captured_function, lifted, real_tensors
from keel.types import SymType, TensorType

VARIABLE = "KEEL_REPRO"
GRAPH, FACTS = "graph.keel", "repro.json"
FORMAT, MOST_FACTS = 1, 1 << 20
UNKNOWN = 64


@dataclass(frozen=True)
class Repro:
    """A graph whose constants are the values that it is called with, the names of backends and options that it was
    compiled with, and what happened.
    """

    captured: Captured
    kind: str
    backends: tuple[str, ...]
    options: tuple[tuple[str, Any], ...]
    happened: str


def repro_root() -> Path | None:
    """The folder that KEEL_REPRO names."""
    root = os.environ.get(VARIABLE)
    return Path(root) if root else None


def written_ahead(
    captured: Captured, settings: Settings, listen: Listener, compile: Callable[[Listener], Boxed]
) -> Boxed:
    """What ``compile`` returns. If KEEL_REPRO is set, a failure of it or of the first call leaves a folder."""
    root = repro_root()
    if root is None:
        return compile(listen)
    trouble = list[str]()

    def note(event: Event) -> None:
        if isinstance(event, GraphCompiled):
            trouble.extend(str(error) for part in event.parts for error in part.trouble)

    ahead = Ahead(root, captured, settings)
    with ahead.of("compile", _made_up(captured)) as failed:
        run = compile(each_of(note, listen))
        if trouble:
            failed(trouble[0])
    called = list[bool]()

    def call(inputs: list[Any]) -> Sequence[Any]:
        if called:
            return run(inputs)
        called.append(True)
        with ahead.of("call", [*inputs, *_constants(captured, len(inputs))]):
            return run(inputs)

    return call


def _constants(captured: Captured, inputs: int) -> list[Any]:
    names = [n.name for n in captured.gm.graph.find_nodes(op="placeholder")][inputs:]
    return [captured.constants[name] for name in names]


def write_wrong_call(settings: Settings, kind: str, gm: fx.GraphModule, values: Sequence[Any], why: str) -> None:
    """If KEEL_REPRO is set, writes a folder with the graph of a part that computed wrong numbers from these values."""
    if (root := repro_root()) is None:
        return
    with _Written(root, "numbers", lambda path, text: save_repro(path, gm, kind, values, settings, text)) as failed:
        failed(why)


class Ahead:
    """Writes a folder before something that may end the process."""

    def __init__(self, root: Path, captured: Captured, settings: Settings) -> None:
        self._root, self._captured, self._settings = root, captured, settings

    def of(self, what: str, values: Sequence[Any]) -> _Written:
        """A context whose folder stays if it raises or if its process dies."""
        return _Written(
            self._root,
            what,
            lambda path, text: save_repro(path, self._captured.gm, self._captured.kind, values, self._settings, text),
        )


class _Written:
    def __init__(self, root: Path, what: str, save: Callable[[Path, str], None]) -> None:
        self._root, self._what, self._save = root, what, save
        self._path: Path | None = None
        self._why = ""

    def __enter__(self) -> Callable[[str], None]:
        try:
            self._path = _new_folder(self._root, self._what)
            self._save(self._path, f"The process ended during the {self._what}.")
        except (KeelError, OSError) as e:  # such as a graph with an operator that no file can have
            warnings.warn(f"{VARIABLE}: a graph is not written: {message_of(e)}", KeelWarning, stacklevel=2)
            self._remove()
        return self._fail

    def _fail(self, why: str) -> None:
        self._why = why

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: object) -> None:
        if raised is not None:
            self._why = f"{type(raised).__name__}: {message_of(raised)}"
        if self._path is None:
            return
        if not self._why:
            self._remove()
            return
        facts = json.loads((self._path / FACTS).read_text(encoding="utf-8"))
        _write_facts(self._path, {**facts, "happened": self._why[:4000]})
        warnings.warn(
            f"A graph failed during its {self._what}. To reduce it: keel minify {self._path}", KeelWarning, stacklevel=2
        )

    def _remove(self) -> None:
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
        self._path = None


def _new_folder(root: Path, what: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for number in range(1 << 20):
        with suppress(FileExistsError):
            path = root / f"{os.getpid()}-{number:03d}-{what}"
            path.mkdir()
            return path
    raise AssertionError("unreachable")


def save_repro(
    path: Path, gm: fx.GraphModule, kind: str, values: Sequence[Any], settings: Settings, happened: str
) -> None:
    """Writes a graph with the values of its placeholders to a folder. Raises what ``save_graph`` raises."""
    tensors = [v for v in values if isinstance(v, Tensor)]

    def run(*leaves: Any) -> Any:
        left = iter(leaves)
        return gm(*[next(left) if isinstance(v, Tensor) else v for v in values])

    with torch.random.fork_rng(), real_tensors():
        fixed = captured_function(run, tensors)
        save_graph(_with_constants(fixed.gm, tensors), path / GRAPH)
    facts = {
        "keel": "repro",
        "format": FORMAT,
        "kind": kind,
        "backends": [b.name for b in settings.backends],
        "options": dict(settings.options),
        "happened": happened,
    }
    _write_facts(path, facts)


def _write_facts(path: Path, facts: dict[str, Any]) -> None:
    (path / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _with_constants(gm: fx.GraphModule, tensors: Sequence[Tensor]) -> fx.GraphModule:
    """The graph with these tensors in place of its placeholders."""
    holder, graph = torch.nn.Module(), fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for k, (node, value) in enumerate(zip(graph.find_nodes(op="placeholder"), tensors, strict=True)):
        holder.register_buffer(f"input{k}", value.detach().clone())
        with graph.inserting_before(node):
            constant = graph.get_attr(f"input{k}")
        constant.meta = dict(node.meta)
        node.replace_all_uses_with(constant)
        graph.erase_node(node)
    return fx.GraphModule(holder, graph)


def _made_up(captured: Captured) -> list[Any]:
    """Values of the types of the placeholders, where no call has been made yet."""
    known, chance = typical_sizes(captured.gm.graph), torch.Generator().manual_seed(0)

    def number(dim: Any) -> int:
        return (
            dim if isinstance(dim, int) else int(evaluate(dim, {s: known.get(s, UNKNOWN) for s in free_symbols(dim)}))
        )

    with real_tensors():
        return _values(captured, number, chance)


def _values(captured: Captured, number: Callable[[Any], int], chance: torch.Generator) -> list[Any]:
    values = list[Any]()
    for node in captured.gm.graph.find_nodes(op="placeholder"):
        match type_of(node.meta["val"]):
            case TensorType() as t:
                shape = tuple(map(number, t.shape))
                drawn = torch.randn(shape, generator=chance) if t.dtype.is_floating_point else torch.zeros(shape)
                made = torch.empty_strided(shape, tuple(map(number, t.strides)), dtype=t.dtype, device=t.device)
                values.append(captured.constants.get(node.name, made.copy_(drawn)))
            case SymType() as t:
                values.append(number(t.expr))
            case _:
                values.append(None)
    return values


def load_repro(path: str | os.PathLike[str]) -> Repro:
    """The graph in a folder. It is read as data, as ``load_graph`` does. Raises KeelError[bad-file]."""
    where = Path(path)
    try:
        facts = Item(parsed(bytes_of(where / FACTS, MOST_FACTS)), FACTS).record(
            ("keel", "format", "kind", "backends", "options", "happened")
        )
        kind = facts["kind"].one_of(("inference", "forward", "backward"), "kind of graph")
        backends = tuple(item.text() for item in facts["backends"].items())
        options = tuple((name, _plain(item)) for name, item in facts["options"].table().items())
        happened = facts["happened"].prose()
    except Malformed as e:
        raise bad_file(where / FACTS, e, what="It is not the description of a failing graph.") from e
    return Repro(lifted(load_graph(where / GRAPH), "inference"), kind, backends, options, happened)


def _plain(item: Item) -> Any:
    if not isinstance(item.value, str | int | float | bool | None):
        item.refuse("It is not a plain value.")
    return item.value
