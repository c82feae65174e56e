"""A device for PyTorch made from nothing (PrivateUse1), and plugins of Keel for it at both levels.

``import keel_privateuse1`` registers the device ``example`` with PyTorch. Its plugins are ``example`` (the loop level)
and ``example_graph`` (the graph level).
"""

from keel_privateuse1.device import NAME, Counters
from keel_privateuse1.graph_backend import backend as graph_backend
from keel_privateuse1.loop_target import backend as loop_backend

__all__ = ["NAME", "Counters", "graph_backend", "loop_backend"]
