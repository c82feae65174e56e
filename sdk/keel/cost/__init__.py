"""The cost of work: a backend's data sheet, and the seconds of a call by the roofline model."""

from keel.cost.roofline import Price, price
from keel.cost.sheet import Cost, Link, Pattern, read_sheets

__all__ = ["Cost", "Link", "Pattern", "Price", "price", "read_sheets"]
