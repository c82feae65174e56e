"""Collectives: what the processes of a group do together. Each is an effect, in the order of the program."""
from keel.spec.op import Family

family = Family("collectives", profile="collectives")
