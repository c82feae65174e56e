"""The options of ``keel_conformance.suite`` in pytest's ini file. Pytest loads this module always: it is small."""

from __future__ import annotations

import pytest

OPTIONS = {
    "keel_backend": (
        "what the conformance suite judges: an installed backend, module:attribute, or a backend of torch.compile",
        "string",
        "",
    ),
    "keel_profile": ("what it has to hold", "string", "core"),
    "keel_tier": ("how many cases: smoke, standard, full", "string", "smoke"),
    "keel_ops": ("only what fits one of these patterns", "args", []),
    "keel_seed": ("seed for choosing the cases and drawing their values", "string", "0"),
    "keel_waivers": ("a TOML file with failures that are known and accepted for a while", "string", ""),
    "keel_in_process": ("run cases in the process of the tests", "bool", False),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    for name, (text, kind, default) in OPTIONS.items():
        parser.addini(name, text, type=kind, default=default)  # type: ignore[arg-type]
