"""PyTorch's catalog: its names, and samples as callables whose values a seed chooses."""

from __future__ import annotations

import random

import pytest
import torch

from keel import universe

# PyTorch's test suite, which contains the catalog, is not free of warnings, and its import takes long.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def test_names_are_unique_and_complete() -> None:
    found = universe.names()
    assert len(found) == len(set(found)) > 600
    assert {"sin", "nn.functional.linear", "index_reduce.mean"} <= set(found)


def test_an_operator_is_tried_in_the_first_dtype_it_takes() -> None:
    assert universe.dtype_of("sin") == torch.float32
    assert universe.dtype_of("bitwise_and") == torch.int64
    assert universe.dtype_of("fft.hfft") == torch.float32


def test_gradients_are_promised_or_not() -> None:
    assert universe.supports_autograd("sin") and not universe.supports_autograd("argmax")


def test_samples_run_and_can_be_thinned_out() -> None:
    some, every = (universe.examples("nn.functional.linear", grad=False, most=n) for n in (3, None))
    assert len(some) == 3 < len(every)
    assert {e.title for e in some} <= {e.title for e in every}
    for e in some:
        assert all(isinstance(t, torch.Tensor) for t in e.fn(*e.inputs))


def test_a_seed_chooses_values_and_nothing_else() -> None:
    before = torch.random.get_rng_state(), random.getstate()
    a, b, c = (universe.examples("nn.functional.linear", grad=True, most=1, seed=seed)[0] for seed in (0, 0, 1))
    assert a.title == b.title == c.title
    assert torch.equal(a.inputs[0], b.inputs[0]) and not torch.equal(a.inputs[0], c.inputs[0])
    assert all(x.requires_grad for x in a.inputs)
    assert torch.equal(before[0], torch.random.get_rng_state()) and before[1] == random.getstate()


def test_the_same_in_double() -> None:
    e = universe.examples("nn.functional.linear", grad=True, most=1)[0]
    wide = e.in_double()
    assert all(
        w.dtype == torch.float64 and w.requires_grad and w.stride() == x.stride()
        for w, x in zip(wide.inputs, e.inputs, strict=True)
    )
    torch.testing.assert_close(wide.fn(*wide.inputs)[0].float(), e.fn(*e.inputs)[0])


def test_dtype_arguments_are_doubled_too() -> None:
    e = next(e for e in universe.examples("sum", grad=False) if "dtype" not in e.title)
    assert e.in_double().fn(*e.in_double().inputs)[0].dtype == torch.float64
