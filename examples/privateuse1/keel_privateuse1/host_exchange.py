"""Collectives of a device that has no library for them: gloo exchanges copies of its tensors on the host.

Importing this module registers the backend ``host_exchange`` of ``torch.distributed``. PyTorch's own gloo refuses
tensors on devices that it does not know. A vendor with a library for collectives calls it instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from keel_privateuse1.device import NAME

GROUP = "host_exchange"
"""What ``init_process_group`` is asked for."""
Method = TypeVar("Method", bound=Callable[..., Any])


def on_host(tensors: Any) -> Any:
    return tensors.cpu() if isinstance(tensors, Tensor) else [on_host(each) for each in tensors]


def write(results: Any, computed: Any) -> None:
    if isinstance(results, Tensor):
        results.copy_(computed)
        return
    for result, each in zip(results, computed, strict=True):
        write(result, each)


def devices_of(tensors: Any) -> set[torch.device]:
    """Those of the tensors that are not on the host."""
    if isinstance(tensors, Tensor):
        return {tensors.device} - {torch.device("cpu")}
    return set[torch.device]().union(*map(devices_of, tensors))


def outside_graphs(method: Method) -> Method:
    """DDP calls collectives from C++ while a compiled model runs. Dynamo would compile what they do."""
    return cast(Method, torch.compiler.disable(method))


class Done(dist.Work):
    """A collective that is finished, with its results."""

    def __init__(self, results: Any) -> None:
        super().__init__()
        self.future: Future[Any] = Future(devices=list(devices_of(results)))
        self.future.set_result(results)

    def wait(self, timeout: Any = None) -> bool:
        return True

    def get_future(self) -> Future[Any]:
        return self.future


class HostExchange(dist.ProcessGroup):
    """A process group with the collectives that DDP, FSDP2 and tensor parallel make. They are finished when they
    return.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # the constructor for subclasses in Python
        self.gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        self.title = ""

    def getBackendName(self) -> str:  # noqa: N802  # PyTorch's name
        return GROUP

    def _set_group_name(self, name: str) -> None:
        self.title = name

    @property
    def group_name(self) -> str:  # type: ignore[override]
        return self.title

    @outside_graphs
    def allreduce(self, tensors: Any, *options: Any) -> Any:
        return self._exchange("allreduce", tensors, (), options)

    @outside_graphs
    def broadcast(self, tensors: Any, *options: Any) -> Any:
        return self._exchange("broadcast", tensors, (), options)

    @outside_graphs
    def allgather(self, results: Any, tensors: Any, *options: Any) -> Any:
        return self._exchange("allgather", results, (tensors,), options)

    @outside_graphs
    def scatter(self, results: Any, tensors: Any, *options: Any) -> Any:
        return self._exchange("scatter", results, (tensors,), options)

    @outside_graphs
    def _allgather_base(self, result: Any, tensor: Any, *options: Any) -> Any:
        return self._exchange("_allgather_base", result, (tensor,), options)

    @outside_graphs
    def _reduce_scatter_base(self, result: Any, tensor: Any, *options: Any) -> Any:
        return self._exchange("_reduce_scatter_base", result, (tensor,), options)

    @outside_graphs
    def allgather_into_tensor_coalesced(self, results: Any, tensors: Any, *options: Any) -> Any:
        return [self._allgather_base(*pair) for pair in zip(results, tensors, strict=True)][-1]

    @outside_graphs
    def reduce_scatter_tensor_coalesced(self, results: Any, tensors: Any, *options: Any) -> Any:
        return [self._reduce_scatter_base(*pair, *options) for pair in zip(results, tensors, strict=True)][-1]

    # What PyTorch 2.13 calls two of them.
    all_gather_single = _allgather_base  # type: ignore[assignment]
    reduce_scatter_single = _reduce_scatter_base  # type: ignore[assignment]

    def _exchange(self, name: str, results: Any, tensors: tuple[Any, ...], options: tuple[Any, ...]) -> Any:
        """Runs a collective of gloo on copies, and writes into ``results``."""
        computed = on_host(results)
        getattr(self.gloo, name)(computed, *map(on_host, tensors), *options).wait()
        write(results, computed)
        return Done(results)


dist.Backend.register_backend(GROUP, HostExchange, devices=["cpu", NAME])
