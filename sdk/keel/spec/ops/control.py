"""Control flow and effects: operators that take graphs, and what keeps host effects in order."""
from keel.spec.op import Family

family = Family("control flow", profile="control")
