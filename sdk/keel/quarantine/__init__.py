"""Plugins of other packages: imported in a process of their own when they are first seen, and contained afterwards."""

from keel.quarantine.contain import Contained, contained
from keel.quarantine.first_import import LIMIT, Report, first_imports

__all__ = ["LIMIT", "Contained", "Report", "contained", "first_imports"]
