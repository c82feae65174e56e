"""A device for PyTorch made from nothing (PrivateUse1), and plugins of Keel for it at both levels.

Importing this package registers the device ``example`` with PyTorch. Where the package is installed, ``import torch``
does that. The plugins are ``keel_privateuse1.loop_target`` and ``keel_privateuse1.graph_backend``. They are not
imported here, because PyTorch imports this package while ``import keel`` imports PyTorch.
"""

from keel_privateuse1.device import NAME, Counters

__all__ = ["NAME", "Counters"]
