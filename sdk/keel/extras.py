"""Optional packages: an extra of torch-keel installs them, and the error for a missing package names the extra."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from keel.errors import KeelError

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "cli": ("typer", "rich"),
    "placement": ("scipy",),
    "conform": ("jsonschema", "pytest"),
}
"""Each extra's packages, as pyproject.toml has them, but for those that PyTorch needs anyway."""


def missing(extra: str) -> list[str]:
    """The packages of the extra that are not installed.  Imports none of them."""
    return [package for package in EXTRAS[extra] if find_spec(package) is None]


def require(extra: str, what: str) -> None:
    """Raises KeelError[missing-extra] if a package that ``what`` needs is not installed."""
    if packages := missing(extra):
        raise KeelError(
            "missing-extra",
            f"{what} needs {' and '.join(packages)}, which this Python does not have.",
            do=f'Install the extra: pip install "torch-keel[{extra}]".',
        )
