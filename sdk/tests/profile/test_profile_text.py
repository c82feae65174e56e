"""A report as text and as a page."""

from __future__ import annotations

from keel.profile.profile_facts import MemoryUse
from keel.profile.profile_page import WIDTH, chart, page
from keel.profile.profile_report import report
from keel.profile.profile_text import BARS, spark

from .records import record

USE = MemoryUse("cpu", 100, "", ((0.0, 0), (0.5, 100), (1.0, 25)))


def test_it_reads_well_at_80_columns() -> None:
    text = str(report(record()))
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("A step takes 16 ms with acme, eager, 20 ms with eager, 12 ms with inductor")
    for word in ("1. 4 ms a step", "net.py:5   print()", "self.n == 0; self.n == 1", "acme has no sort.", "layer.*"):
        assert word in text, text


def test_a_model_without_trouble_says_so() -> None:
    text = str(report(record(breaks=(), compilations=(), graphs=(), profiled=record().profiled[:1])))
    assert "0 graph breaks" in text and "0 recompilations" in text


def test_memory_over_time_is_drawn() -> None:
    line = spark(USE)
    assert len(line) == BARS and line[0] == "▁" and line[BARS // 2] == "█" and line[-1] == "▃"
    assert chart(USE).startswith("M0 120 L0 120") and chart(USE).endswith(f"L{WIDTH} 90 L{WIDTH} 120 Z")


def test_the_page_needs_nothing_from_outside() -> None:
    html = page({"<net>": report(record())})
    assert "http" not in html and "prefers-color-scheme: dark" in html and "&lt;net&gt;" in html
    for word in ("k_1 gelu", "net.py:5", "acme has no sort.", "self.n == 1", "<svg", "keel inference graph 1/0"):
        assert word in html
