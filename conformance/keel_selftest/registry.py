"""Mutants, which are deliberately wrong backends, and variants that are correct but different. Both test the suite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType

from . import equivalent, equivalent_fused, equivalent_norms, null_backends
from .mutant import Mutant
from .mutants import (
    data_movement,
    errors_and_gradients,
    graph_passes,
    library_kernels,
    loop_kernels,
    miscompiles,
    miscompiles_movement,
    operator_edges,
    pointwise,
    pooling_conv,
    precision,
    reductions,
    rewrites,
    runtime_entries,
    runtime_state,
    runtimes,
    stateful,
)


def _of(modules: Iterable[ModuleType]) -> Mapping[str, Mutant]:
    results = [
        m
        for module in modules
        for m in vars(module).values()
        if isinstance(m, Mutant) and m.subject.startswith(f"{module.__name__}:")
    ]
    return {m.name if m.level != "loop" else f"loop-{m.name}": m for m in results}


MUTANTS: Mapping[str, Mutant] = _of(
    (
        pointwise,
        reductions,
        data_movement,
        pooling_conv,
        miscompiles,
        miscompiles_movement,
        stateful,
        errors_and_gradients,
        graph_passes,
        rewrites,
        precision,
        runtimes,
        operator_edges,
        runtime_state,
        library_kernels,
        runtime_entries,
        loop_kernels,
    )
)
CONTROLS: Mapping[str, Mutant] = _of((null_backends,))
BENIGN: Mapping[str, Mutant] = _of((equivalent, equivalent_fused, equivalent_norms))

__all__ = ["BENIGN", "CONTROLS", "MUTANTS", "Mutant"]
