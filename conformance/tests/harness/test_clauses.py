"""What is seen of a call names the clause that it breaks."""
from __future__ import annotations

import pytest
import torch

from keel_conformance.harness import clauses
from keel_conformance.programs.contract import CLAUSES


@pytest.mark.parametrize(("fault", "clause"), [
    ("Call 0: It wrote to argument 0 (4400 bytes).", "contract.mutation.C1"),
    ("Call 0: It wrote after the memory of argument 0 (4 bytes).", "contract.mutation.C5"),
    ("Result 0 of call 1 was changed by a later one.", "contract.calls.C2"),
    ("Result 0 of call 0 shares memory with result 0 of call 1.", "contract.calls.C2"),
    ("Result 0 of call 0 shares memory with argument 0.", "contract.aliases.C4"),
    ("Result 1 of call 0 shares memory with result 0.", "contract.aliases.C1"),
    ("Result 0 is on cuda, not on cpu.", "contract.layouts.C4"),
    ("Something else.", ""),
])
def test_a_fault_names_its_clause(fault: str, clause: str) -> None:
    assert clauses.of_fault(fault) == clause and (not clause or clause in CLAUSES)


def test_an_exception_of_a_broken_promise_does() -> None:
    text = "KeelError: KeelError[wrong-result]: x broke the promise of part p0. %sub: Its {} [65, 1], not [1, 17]."
    assert clauses.of_exception(text.format("strides are")) == "contract.layouts.C1"
    assert clauses.of_exception(text.format("shape is")) == "contract.layouts.C4"
    assert clauses.of_exception("RuntimeError: no") == ""


def test_results_of_the_first_call_were_kept() -> None:
    one, other = torch.ones(3), torch.zeros(3)
    assert clauses.of_later_call([one], [one.clone()]) == clauses.KEPT in CLAUSES
    assert clauses.of_later_call([one], [other]) == "" == clauses.of_later_call([], [])
    assert clauses.REPEATED in CLAUSES
