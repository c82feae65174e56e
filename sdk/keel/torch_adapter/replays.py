"""Functions that are captured in graphs of a device and replayed, on any device whose work PyTorch can capture.

A captured function runs normally until it has been called twice with the same sizes and the same memory of its static
inputs. Then a graph is captured, which later calls replay:

* Static inputs are read where they are. If one has moved, another graph is captured. Other inputs are copied to memory
  of the graph.
* Results that the program gets are copied. What forward saves for backward, and gradients, are not: their memory is not
  used again before they are dead. A call that comes earlier uses another graph, or none.
* Graphs of one function, and of its backward, share a memory pool, so they run one after the other.
* Kernels draw random numbers when they are replayed; the generator of the device must allow for that.
"""

from __future__ import annotations

import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Protocol
from weakref import ref

import torch

from keel.errors import KeelWarning, first_line
from keel.torch_adapter.capture import Boxed
from keel.torch_adapter.captured_work import CapturedWork, noting_captured_work
from keel.torch_adapter.modes import without_modes
from keel.torch_adapter.mutations import copy_of
from keel.torch_adapter.streams import is_capturing

MOST_GRAPHS = 16
"""The most graphs of one function. If it needs another, the one that was not used for longest is dropped."""
MOST_COUNTED = 256
"""The number of keys whose calls are counted."""
Key = tuple[Any, ...]


class DeviceGraph(Protocol):
    """What Keel uses of ``torch.accelerator.Graph``."""

    def capture_begin(self) -> None: ...
    def capture_end(self) -> None: ...
    def replay(self) -> None: ...
    def reset(self) -> None: ...
    def pool(self) -> Any: ...


def graph_type(device: torch.device) -> Callable[..., DeviceGraph] | None:
    """The class of a device's graphs, whose constructor takes a ``pool``; None if the device cannot capture its work.

    That is ``torch.accelerator.Graph``, from PyTorch 2.13 on. A device that has no such graphs may have a class of the
    same form in its module, as ``torch.<device>.Graph``.
    """
    try:
        graphs: Any = torch.accelerator.Graph  # type: ignore[attr-defined, unused-ignore]
        graphs()
    except (AttributeError, RuntimeError):  # an older PyTorch, or a device that has registered none
        module: Any = torch.get_device_module(device)
        return getattr(module, "Graph", None)
    return graphs  # type: ignore[no-any-return]


@dataclass
class GraphMemory:
    """What the graphs of one function and of its backward share: a memory pool, the stream on which they are captured,
    and the stream on which one was last replayed.
    """

    device: torch.device
    make: Callable[..., DeviceGraph]
    lock: RLock = field(default_factory=RLock)  # reentrant: capturing may free tensors, which runs what users attached
    pool: Any = None
    last: torch.Stream | None = None

    def capture(self, run: Boxed, inputs: list[Any]) -> tuple[DeviceGraph, Sequence[Any], CapturedWork]:
        """Captures ``run``. Raises what it raises, and what the device raises of work that it cannot capture."""
        current, stream = self.in_order(), torch.Stream(self.device)
        graph = self.make(pool=self.pool)
        stream.wait_stream(current)
        try:
            with torch.accelerator.device_index(self.device.index), stream, noting_captured_work() as work:
                graph.capture_begin()
                self.pool = graph.pool()
                try:
                    results = run(inputs)
                finally:
                    graph.capture_end()
        except BaseException:
            graph.reset()
            raise
        current.wait_stream(stream)
        return graph, results, work

    def replay(self, graph: DeviceGraph) -> None:
        self.in_order()
        if torch.accelerator.current_device_index() == self.device.index:
            graph.replay()
            return
        with torch.accelerator.device_index(self.device.index):
            graph.replay()

    def in_order(self) -> torch.Stream:
        """The current stream. It waits for what was replayed on another one, since graphs share memory."""
        current = torch.accelerator.current_stream(self.device)
        if self.last is not None and self.last != current:
            current.wait_stream(self.last)
        self.last = current
        return current


class ReplayedGraph:
    """One graph of a function: where its inputs are, how a call's results are made, and whether it may be replayed."""

    def __init__(self, memory: GraphMemory, run: Boxed, inputs: Sequence[Any], static: frozenset[int], results: int):
        self.memory, self.used = memory, 0
        moving = {i: x for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and i not in static}
        self.buffers = {
            i: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device) for i, x in moving.items()
        }
        sources = [self.buffers.get(i, x) for i, x in enumerate(inputs)]
        with torch.no_grad():
            self.graph, made, self.work = memory.capture(run, list(sources))
        self.static = [(i, ref(inputs[i])) for i in static] if self.work.conditions else []
        self._of_input = _results_in_inputs(made, sources, frozenset(self.buffers), results)
        self._copied = {r for r, x in enumerate(made) if isinstance(x, torch.Tensor) and r < results}
        self._made = [
            None if r in self._of_input else x.data if isinstance(x, torch.Tensor) else x for r, x in enumerate(made)
        ]
        del made, sources
        self._lend()

    def _lend(self) -> None:
        """Lists the storages that calls share with the graph, with the number of references that the graph has to each.
        A storage that something else refers to already is not shared: results in it are copied.
        """
        lent = {r: x for r, x in enumerate(self._made) if isinstance(x, torch.Tensor) and r not in self._copied}
        counts = Counter(_storage(x) for x in (*lent.values(), *self.buffers.values()))
        probe = torch.empty(1)
        more = _uses(_storage(probe)) - 1  # from Python's object of the storage
        self._copied |= {r for r, x in lent.items() if _uses(_storage(x)) > counts[_storage(x)] + more}
        storages = {_storage(x) for r, x in lent.items() if r not in self._copied}
        self._lent = [(storage, counts[storage] + more) for storage in storages]

    def is_valid(self, args: Sequence[Any]) -> bool:
        """False if something has changed that is not an input."""
        return all(condition() for condition in self.work.conditions) and all(args[i] is x() for i, x in self.static)

    def is_idle(self) -> bool:
        """True if nothing outside uses the graph's memory."""
        return all(_uses(storage) <= count for storage, count in self._lent)

    def __call__(self, args: list[Any]) -> list[Any]:
        inputs = list(args)
        args.clear()
        with torch.no_grad():
            self.memory.in_order()
            for i, buffer in self.buffers.items():
                _copy(buffer, inputs[i])
            self.memory.replay(self.graph)
            results = [
                self._of_input[r].of(inputs) if r in self._of_input else self._result(r, x)
                for r, x in enumerate(self._made)
            ]
        for look in self.work.after_replay:
            look()
        return results

    def _result(self, r: int, x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return copy_of(x) if r in self._copied else x.data


def _storage(x: torch.Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def _uses(storage: int) -> int:
    """The number of references to a storage."""
    return int(torch._C._storage_Use_Count(storage))


@dataclass(frozen=True)
class _OfInput:
    """A result in the memory of an input: the input's number, and where the result begins, in elements behind it."""

    number: int
    shape: torch.Size
    strides: tuple[int, ...]
    offset: int

    def of(self, inputs: Sequence[Any]) -> torch.Tensor:
        source: torch.Tensor = inputs[self.number]
        if (source.shape, source.stride(), 0) == (self.shape, self.strides, self.offset):
            return source
        return source.as_strided(self.shape, self.strides, source.storage_offset() + self.offset)


def _results_in_inputs(
    made: Sequence[Any], sources: Sequence[Any], moving: frozenset[int], results: int
) -> dict[int, _OfInput]:
    """The results of a call that lie in the memory of its inputs. Those after the first ``results`` that lie in an
    input's copy stay there, where backward finds them in each call.
    """
    places = dict[tuple[Any, ...], int]()
    for i, source in enumerate(sources):
        if isinstance(source, torch.Tensor):
            places.setdefault(_place(source), i)
    of_inputs = dict[int, _OfInput]()
    for r, x in enumerate(made):
        number = places.get(_place(x)) if isinstance(x, torch.Tensor) else None
        if number is not None and (number not in moving or r < results):
            offset = x.storage_offset() - sources[number].storage_offset()
            of_inputs[r] = _OfInput(number, x.shape, x.stride(), offset)
    return of_inputs


def _place(x: torch.Tensor) -> tuple[Any, ...]:
    """The storage of a tensor, and how its elements are read."""
    return _storage(x), x.dtype, x.is_conj(), x.is_neg()


@dataclass(frozen=True)
class Replayable:
    """A function that may be captured: what it is, the numbers of its ``static`` inputs, which seldom move, and of its
    inputs that are ``numbers``. The program may hold the first ``results`` results for as long as it likes. ``ready``
    tells when it may be captured, and ``refuses`` then why it cannot be, a sentence.
    """

    run: Boxed
    what: str
    static: tuple[int, ...]
    numbers: tuple[int, ...]
    results: int
    ready: Callable[[], bool] = lambda: True
    refuses: Callable[[], str | None] = lambda: None


class Replayed:
    """A function that is captured on a device and replayed. In a graph that the program captures it runs normally."""

    def __init__(self, function: Replayable, memory: GraphMemory):
        self.function, self.memory = function, memory
        self.graphs: dict[Key, list[ReplayedGraph]] = {}
        self._counted: OrderedDict[Key, int] = OrderedDict()
        self._calls, self._patience, self._captures = 0, 1, True

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        run = self.function.run
        if not self._captures or not self.function.ready() or is_capturing(self.memory.device):
            return run(args)
        numbers, static = self.function.numbers, self.function.static
        key = (*(args[i] for i in numbers), *(args[i].data_ptr() for i in static))
        with self.memory.lock:
            self._calls += 1
            if (graph := self._idle_graph(key, args)) is not None:
                graph.used = self._calls
                return graph(args)
            due = self._is_due(key)
        if not due:
            return run(args)
        inputs = list(args)
        results = run(args)  # whatever the function prepares in a call is prepared now, outside the graph
        with self.memory.lock:
            self._capture(key, inputs)
        return results

    def _idle_graph(self, key: Key, args: Sequence[Any]) -> ReplayedGraph | None:
        for graph in list(self.graphs.get(key, ())):
            if not graph.is_valid(args):
                self._drop(key, graph)
            elif graph.is_idle():
                return graph
        return None

    def _is_due(self, key: Key) -> bool:
        """True if a graph is to be captured for ``key``: if there were more calls with it than graphs were dropped, so
        that graphs are not captured in vain.
        """
        count = self._counted[key] = self._counted.pop(key, 0) + 1
        if len(self._counted) > MOST_COUNTED:
            self._counted.popitem(last=False)
        return count > self._patience and (self._has_room() or self._oldest() is not None)

    def _has_room(self) -> bool:
        return sum(map(len, self.graphs.values())) < MOST_GRAPHS

    def _oldest(self) -> tuple[Key, ReplayedGraph] | None:
        """The graph that was not used for longest, of those whose memory is not in use."""
        idle = [(key, graph) for key, graphs in self.graphs.items() for graph in graphs if graph.is_idle()]
        return min(idle, key=lambda each: each[1].used, default=None)

    def _drop(self, key: Key, graph: ReplayedGraph) -> None:
        self.graphs[key].remove(graph)
        if not self.graphs[key]:
            del self.graphs[key]
        self._counted.pop(key, None)
        self._patience += 1
        graph.graph.reset()

    def _capture(self, key: Key, inputs: list[Any]) -> None:
        if (reason := self.function.refuses()) is not None:
            return self._give_up(reason)
        if not self._has_room() and (oldest := self._oldest()) is not None:
            self._drop(*oldest)
        static, results = frozenset(self.function.static), self.function.results
        try:
            with without_modes(), torch.inference_mode(False):
                graph = ReplayedGraph(self.memory, self.function.run, inputs, static, results)
        except Exception as e:
            return self._give_up(f"{self.memory.device} could not capture it: {first_line(e)}")
        graph.used = self._calls
        self.graphs.setdefault(key, []).append(graph)

    def _give_up(self, reason: str) -> None:
        self._captures = False
        sentence = f"The {self.function.what} graph runs without capture and replay. {reason}"
        warnings.warn(sentence, KeelWarning, stacklevel=3)


def _copy(to: torch.Tensor, x: torch.Tensor) -> None:
    """Copies an input to memory with the same strides, in which elements may lie on each other."""
    if 0 in to.stride():
        repeated = tuple(slice(0, 1) if s == 0 else slice(None) for s in to.stride())
        to, x = to[repeated], x[repeated]
    to.copy_(x, non_blocking=True)
