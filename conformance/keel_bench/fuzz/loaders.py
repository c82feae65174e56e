"""What reads files, each with real files to begin with and with how they are mutated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keel
from keel_conformance.certificate import verify
from keel_conformance.harness import journal, waivers
from keel_conformance.workers.result_log import ResultLog

from ..closure.jobs import Job, Row
from . import seeds
from .mutate import Mutation, of_bytes, of_json, of_lines, of_words, one_of, within


@dataclass(frozen=True)
class Loader:
    """``load`` reads a file; ``seeds`` gives real files, and ``mutate`` changes one."""

    name: str
    load: Callable[[Path], Any]
    seeds: Callable[[], list[bytes]]
    mutate: Mutation


def _kernel(path: Path) -> Any:
    kernel = keel.loops.parse(path.read_text("utf-8", "surrogateescape"))
    keel.loops.verify(kernel)
    keel.loops.show(kernel)
    return kernel


def _measurement(path: Path) -> Any:
    return ResultLog(path, Job, lambda job, row: Row(**row)).resume()


_DATA = one_of(of_json, of_json, of_json, of_words, of_bytes)
_LINES = one_of(of_lines, of_lines, of_words, of_bytes)
_GRAPH = one_of(
    *([within("graph.json", of_json)] * 6),
    within("graph.json", of_words),
    within("graph.json", of_bytes),
    within("constants.pt", of_bytes, "data.pkl"),
    within("constants.pt", of_bytes),
    of_bytes,
)

LOADERS: Mapping[str, Loader] = {
    loader.name: loader
    for loader in (
        Loader("graph", keel.serialize.load_graph, seeds.graphs, _GRAPH),
        Loader("kernel", _kernel, seeds.kernels, one_of(of_words, of_words, of_bytes)),
        Loader("sheets", keel.cost.read_sheets, seeds.sheets, _DATA),
        Loader("waivers", lambda path: waivers.read(path, "acme"), seeds.waivers, one_of(of_words, of_bytes)),
        Loader("log", journal.read, seeds.logs, _LINES),
        Loader("certificate", verify.form, seeds.certificates, _DATA),
        Loader("report", verify.read_report, seeds.reports, _DATA),
        Loader("measurement", _measurement, seeds.measurements, _LINES),
    )
}
