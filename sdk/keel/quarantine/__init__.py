"""Plugins of other packages: first imported in a separate process, and contained afterwards."""

from keel.quarantine.contain import Contained, contained
from keel.quarantine.first_import import LIMIT, Report, first_imports

__all__ = ["LIMIT", "Contained", "Report", "contained", "first_imports"]
