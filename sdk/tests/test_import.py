"""What is dear to import is imported when somebody asks for it, and found then."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

LATE = (
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch._inductor",
    "torch.ao.quantization.fx",
    "torch.distributed._functional_collectives",
    "torch._higher_order_ops.triton_kernel_wrap",
    "torch.nn.modules.linear_cross_entropy",
    "torch.testing",
    "triton",
    "typer",
    "keel.closure",
    "keel.coverage",
    "keel.torch_adapter.universe",
)


def python(text: str) -> list[str]:
    """What a Python of its own prints."""
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_importing_keel_imports_nothing_dear() -> None:
    assert (
        python(
            "import sys, torch; before = set(sys.modules); import keel; "
            f"print(*(set(sys.modules) - before) & set({LATE}))"
        )
        == []
    )


def test_importing_the_compiler_imports_no_other_one() -> None:
    """Plugins, and the processes of the conformance suite that judge and do not compile, start sooner without."""
    assert python("import sys, keel.compiler; print(*{'torch._dynamo', 'torch._inductor'} & set(sys.modules))") == []


def test_operators_registered_late_are_found() -> None:
    names = ["all_reduce", "quantize_per_tensor", "triton_kernel_wrapper_functional", "varlen_attention"]
    assert python(f"import keel; print(*(n for n in {names} if not keel.opset.MEMBERS[n].targets))") == []


def test_rooms_that_few_need_are_names_like_others() -> None:
    said = python("import keel; print(keel.closure.__name__); from keel import coverage; print(coverage.__name__)")
    assert said == ["keel.closure", "keel.coverage"]
