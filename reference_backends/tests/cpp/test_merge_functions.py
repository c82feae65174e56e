"""Merging: which functions share a body, and that every one computes what it did alone."""

from __future__ import annotations

from keel import Source
from keel_cpp import target
from keel_cpp.build import unit
from keel_cpp.merge_functions import definitions

from .kernels import kernel, sizes_of
from .test_execute import inputs

HEAD = 'extern "C" __attribute__((visibility("default"))) void '


def scaled(size: str, factor: str, name: str = "x") -> str:
    return f"float* {name}) {{\n  for (int i = 0; i < {size}; ++i) {name}[i + {size}] *= {factor} + 1.f;\n}}\n"


def test_one_body_takes_the_numbers_that_differ() -> None:
    assert definitions({"one": scaled("4", "2.f"), "two": scaled("16", "0.5f")}) == [
        "SHARED void merged_one(float* x, int number0, float number1) {\n"
        "  for (int i = 0; i < number0; ++i) x[i + number0] *= number1 + 1.f;\n"
        "}\n",
        HEAD + "one(float* x) { merged_one(x, 4, 2.f); }\n",
        HEAD + "two(float* x) { merged_one(x, 16, 0.5f); }\n",
    ]


def test_what_differs_in_more_than_parameters_stays_apart() -> None:
    for one, other in (
        (scaled("4", "2.f"), scaled("4", "2.", name="x")),  # float and double
        (scaled("4", "2.f"), scaled("40000000000", "2.f")),  # int and i64
        (scaled("4", "2.f"), scaled("4", "2.f", name="y")),
        (scaled("4u", "2.f"), scaled("8u", "2.f")),  # the compiler has to know the number
        (scaled("4", "0x1p2f"), scaled("4", "0x1p3f")),
    ):
        assert definitions({"one": one, "two": other}) == [f"{HEAD}one({one}", f"{HEAD}two({other}"]


def test_numbers_equal_in_one_function_only_are_two_parameters() -> None:
    texts = {"one": "int* x) {\n  x[2] = 2;\n}\n", "two": "int* x) {\n  x[3] = 5;\n}\n"}
    shared, first, second = definitions(texts)
    assert "x[number0] = number1;" in shared
    assert first.endswith("merged_one(x, 2, 2); }\n") and second.endswith("merged_one(x, 3, 5); }\n")


def test_digits_of_names_are_not_numbers() -> None:
    texts = {n: f"float* in0, i64 s1) {{\n  const float v1 = in0[s1 + {n[-1]}];\n}}\n" for n in ("k1", "k2")}
    shared, *callers = definitions(texts)
    assert "const float v1 = in0[s1 + number0];" in shared
    assert callers == [HEAD + f"k{n}(float* in0, i64 s1) {{ merged_k1(in0, s1, {n}); }}\n" for n in (1, 2)]


def test_merged_kernels_compute_what_they_do_alone() -> None:
    for name in ("softmax", "column_softmax", "welford", "column_sum", "transposed", "broadcast"):
        values = ({"N": n, "M": m} for n, m in ((200, 96), (250, 128), (180, 128)))
        sizes = [{s: v[s] for s in sizes_of(name)} for v in values]
        sources = [Source(k, target.render(k)) for k in (kernel(name, **s) for s in sizes)]
        assert "SHARED void merged_" in unit(sources)[1], name
        together = target.build(sources)
        for size, source, launcher in zip(sizes, sources, together, strict=True):
            (alone,) = target.build([source])
            have, want = (inputs(source.kernel, size, special=False) for _ in range(2))
            launcher(*have.values())
            alone(*want.values())
            assert all(have[b].equal(want[b]) for b in want), (name, size)
