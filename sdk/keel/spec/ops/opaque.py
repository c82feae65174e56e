"""What stays outside: neither decomposed nor asked of a backend, each with its reason."""
from keel.spec.op import Family

family = Family("opaque", profile="host")
