"""What figures depend on besides the code."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest

from keel_conformance import report


def test_packages_that_are_not_installed_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "timm":
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(report, "version", version)
    assert report.machine()["packages"] == {"torch-keel": "1.0", "transformers": "1.0"}
