"""The types of the devices that a graph uses."""

from __future__ import annotations

import torch
from torch import fx

from keel.types import leaves


def device_types(gm: fx.GraphModule) -> frozenset[str]:
    """The device types of a graph's tensors (``cpu``, ``cuda``), of a graph of Dynamo's or of a captured one."""
    metas = (node.meta for node in gm.graph.nodes)
    values = (value for meta in metas for value in leaves(meta.get("val", meta.get("example_value"))))
    return frozenset(v.device.type for v in values if isinstance(v, torch.Tensor))
