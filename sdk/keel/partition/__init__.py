"""Who compiles what: an owner for each call, convex parts, a certificate, and a graph per part."""
from keel.partition.assign import place
from keel.partition.certificate import check
from keel.partition.plan import Part, Plan, Refusals
from keel.partition.split import PartGraph, split

__all__ = ["Part", "PartGraph", "Plan", "Refusals", "check", "place", "split"]
