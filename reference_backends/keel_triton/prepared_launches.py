"""Launchers of kernels whose functions are prepared for a device, an alignment and sizes when they are first called."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from keel import Launcher
from keel.loops import Kernel
from keel.plugin import stream_handle
from keel_triton.driver import cuda
from keel_triton.native_launch import Runs, Variants

SIZES = 256  # the number of sets of sizes whose functions a launcher keeps

Prepare = Callable[[int, bool, tuple[int, ...]], Runs]
"""Returns what is launched on a device, which is current, for addresses that are all multiples of 16 or not, and for
the values of the kernel's symbols.
"""


class PreparedLaunches:
    """A kernel, and what ``prepare`` returned for it."""

    def __init__(self, kernel: Kernel, prepare: Prepare):
        self.kernel, self.prepare = kernel, prepare
        self.ready: OrderedDict[tuple[int, ...], Runs] = OrderedDict()

    def launcher(self) -> Launcher:
        """A launcher in C that knows what was launched before, if a device is here; in Python, which adds to that."""
        sizes = len(self.kernel.buffers), len(self.kernel.symbols)
        variants = Variants(*sizes, cuda()) if torch.cuda.is_available() else None
        launch = self.in_python(variants)
        return launch if variants is None else variants.launcher(launch)

    def in_python(self, variants: Variants | None) -> Launcher:
        count, ready = len(self.kernel.buffers), self.ready
        current = torch.cuda.current_device

        def launch(*args: Any) -> None:
            pointers = [a.data_ptr() for a in args[:count]]
            bits = 0
            for p in pointers:
                bits |= p
            device = args[0].get_device()
            if device != current():
                with torch.cuda.device(device):
                    return launch(*args)
            key = (device, (bits & 15) == 0, *args[count:])
            runs = ready.get(key)
            if runs is None:
                runs = ready[key] = self.prepare(device, key[1], args[count:])
                if variants is not None:
                    variants.add(device, key[1], args[count:], runs)
                if len(ready) > SIZES:
                    ready.popitem(last=False)
            stream = stream_handle(device)
            for which, run in runs:
                run.launch([pointers[k] for k in which], stream)
            return None

        return launch
