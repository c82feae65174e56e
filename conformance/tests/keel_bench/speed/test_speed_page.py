"""The page has a row for each job with figures, and the plot a dot."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from keel_bench.speed import speed_page

FIGURES = {"rounds": [2.0, 4.0, 3.0], "peak_mib": 10.0, "cpu_s": 1.0, "first_s": 1.0}
JOB = {"mode": "inference", "precision": "fp32", "batch": 8}
ROWS = [
    {"model": "fast", **JOB, "contenders": {"eager": FIGURES, "keel": FIGURES, "inductor": FIGURES}},
    {"model": "a<b", **JOB, "contenders": {"eager": FIGURES, "keel": {"failure": "no"}, "inductor": FIGURES}},
    {"model": "dead", **JOB, "failure": "It died."},
]
RECORD = {
    "made": "today",
    "machine": {"cpu": "acme", "cores": 2, "torch": "2.13.0"},
    "bars": [{"name": "speed", "value": 1.0, "target": ">= 1", "holds": True, "note": "one | two"}],
    "rows": ROWS,
}


def test_a_page_and_its_plot_are_written(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(json.dumps(RECORD))
    speed_page.main(str(tmp_path / "in.json"), str(tmp_path / "speed.md"))
    text = (tmp_path / "speed.md").read_text()
    assert "![Speed of each job, as a ratio to Inductor's](speed.svg)" in text
    assert "| speed | 1 | >= 1 | yes | one \\| two |" in text
    assert "| fast inference fp32 x8 | 3.00 | 3.00 |  | 3.00 |  | 1.00 | 1.00 to 1.00 | 1.00 | 1.00 |" in text
    assert "| a<b inference fp32 x8 | 3.00 | 3.00 |  | failed |  | failed |" in text
    plot = ElementTree.fromstring((tmp_path / "speed.svg").read_text())
    assert sum(element.tag.endswith("circle") for element in plot.iter()) == 2


@pytest.mark.parametrize(("value", "where"), [(0.1, 300), (0.5, 300), (1.0, 550), (9.0, 800)])
def test_the_scale_is_logarithmic_and_ends(value: float, where: float) -> None:
    assert speed_page.x(value) == where
