"""The backend of last resort: every graph already runs in PyTorch, operator by operator, on any device."""

from keel import Backend, Rule, Support
from keel.cache import package_fingerprint
from keel_eager.cost_model import COST
from keel_eager.redraws import runnable

backend = Backend(
    name="eager",
    device="*",
    supports=Support((Rule(ops=("*",)),)),
    compile=runnable,
    last_resort=True,
    cost=COST,
    fingerprint=lambda: package_fingerprint("keel_eager"),
)
