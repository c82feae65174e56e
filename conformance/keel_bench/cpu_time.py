"""Seconds of the processor: nearly immune to what else the machine does, as elapsed seconds are not."""

from __future__ import annotations

import resource


def cpu_seconds() -> float:
    """User and system seconds of this process and of every child it has waited for."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, whose))
