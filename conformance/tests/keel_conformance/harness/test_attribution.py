"""What is seen of a call names the clause that it breaks."""

from __future__ import annotations

import pytest
import torch

from keel_conformance.harness import attribution
from keel_conformance.harness.protocol import ExceptionInfo
from keel_conformance.programs.contract import CLAUSES
from keel_conformance.results.fault import Fault


@pytest.mark.parametrize(
    ("fault", "clause"),
    [
        (Fault("argument written", "It wrote to argument 0 (4400 bytes)."), "contract.mutation.C1"),
        (Fault("surroundings written", "It wrote after the memory of argument 0 (4 bytes)."), "contract.mutation.C5"),
        (Fault("result changed", "Result 0 of call 1 was changed by a later one.", 0, 1), "contract.calls.C2"),
        (
            Fault("result shared", "Result 0 of call 0 shares memory with result 0 of call 1.", 0, 0, 0, 1),
            "contract.calls.C2",
        ),
        (
            Fault("result shared", "Result 0 of call 0 shares memory with result 0 of neg/f32, call 1.", 0),
            "contract.aliases.C1",
        ),
        (Fault("argument shared", "Result 0 of call 0 shares memory with argument 0.", 0), "contract.aliases.C4"),
        (Fault("result shared", "Result 1 of call 0 shares memory with result 0.", 1, 0, 0), "contract.aliases.C1"),
        (Fault("device", "Result 0 is on cuda, not on cpu.", 0), "contract.layouts.C4"),
        (Fault("sizes", "The result has the sizes [2], not [3].", 0), ""),
    ],
)
def test_a_fault_names_its_clause(fault: Fault, clause: str) -> None:
    assert fault.clause == clause and (not clause or clause in CLAUSES)


def test_a_verdict_keeps_where_a_fault_is() -> None:
    fault = Fault("result shared", "Result 2 of call 0 shares memory with result 0 of call 1.", 2, 0, 0, 1)
    assert fault.figures == {"fault": "result shared", "result": 2, "call": 0, "other": 0, "other_call": 1}
    assert Fault("argument written", "It wrote.").of_call(1) == Fault("argument written", "Call 1: It wrote.", call=1)


def test_an_exception_of_a_broken_promise_does() -> None:
    def of(code: str, aspect: str = "") -> str:
        return attribution.of_exception(
            ExceptionInfo("running", "KeelError: in whatever words.", code=code, aspect=aspect)
        )

    assert of("wrong-result", "strides") == "contract.layouts.C1"
    assert of("wrong-result", "shape") == "contract.layouts.C4"
    assert of("compile-raised") == of("") == ""


def test_results_of_the_first_call_were_kept() -> None:
    one, other = torch.ones(3), torch.zeros(3)
    assert attribution.of_later_call([one], [one.clone()]) == attribution.STALE_RESULTS in CLAUSES
    assert attribution.of_later_call([one], [other]) == "" == attribution.of_later_call([], [])
    assert attribution.REPEATED in CLAUSES
