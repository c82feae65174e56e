"""The texts of folds and scans: one result after the loop, or one for each place within it."""

from __future__ import annotations

from keel_conformance.kernels import templates

TEXTS = {form.name: form.text for form in (*templates._folds(), *templates._scans())}


def test_a_fold_stores_after_its_loop() -> None:
    assert TEXTS["fold-argmax-columns"] == (
        "kernel fold(a: T[N*M]) -> (o0: T[N], o1: i64[N]):\n"
        "  parallel i < N:\n    reduce j < M:\n      %0 = load a[N*j + i]\n      %1 = position j\n"
        "      %90, %91 = reduce argmax %0 %1\n    store o0[i] %90\n    store o1[i] %91"
    )
    assert TEXTS["fold-sum-whole"] == (
        "kernel fold(a: T[M]) -> (o0: T[1]):\n"
        "  reduce j < M:\n    %0 = load a[j]\n    %90 = reduce sum %0\n  store o0[0] %90"
    )


def test_a_scan_stores_within() -> None:
    assert TEXTS["scan-max-rows"] == (
        "kernel scanned(a: T[N*M]) -> (o0: T[N*M]):\n"
        "  parallel i < N:\n    scan j < M:\n      %0 = load a[M*i + j]\n      %90 = scan max %0\n"
        "      store o0[M*i + j] %90"
    )
