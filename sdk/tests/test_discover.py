"""Plugins found by entry point, the healthy and the sick."""
from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from keel.discover import Discovery, discover, find, installed, resolve, survey
from keel.errors import KeelError
from keel.plugin import API, Backend

HERE = sys.modules["keel.discover"]                          # keel.discover itself is the function of that name
HEAD = "from keel.plugin import Backend, LoopTarget\n"
GOOD = 'backend = Backend(name="{0}", device="cpu", supports=lambda call: None, compile=lambda gm: gm.forward{1})'

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """``install(name, source)`` makes a distribution ``vendor-<name>`` with a module ``vendor_<name>``."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name: str, source: str, *, package: str | None = None, value: str = "backend") -> None:
        package = package or name
        (tmp_path / f"vendor_{package}.py").write_text(HEAD + dedent(source))
        info = tmp_path / f"vendor_{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vendor-{package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[keel.backends]\n{name} = vendor_{package}:{value}\n")
        monkeypatch.delitem(sys.modules, f"vendor_{package}", raising=False)
    return make


def good(name: str = "zeta", more: str = "") -> str:
    return GOOD.format(name, more)


SICK = {
    "import": "import quantum_flux_capacitor",
    "raises": "raise RuntimeError('the driver says 0x17')",
    "value": "backend = 7",
    "missing": "other = 7",
    "target": """
        import torch
        backend = LoopTarget(name="zeta", device="cpu", dtypes={torch.float32: "float"}, scalars={"add": "{0} + {1}"},
                             reductions={}, render=str, build=list)
        """,
    "name": good("eta"),
    "field": good(more=", teleport=True"),
    "older": good(more=", api=0"),
    "newer": good(more=", api=99"),
    "probe": good(more=", probe=lambda: 'No zeta card answers on the bus.'"),
    "probe raises": good(more=", probe=lambda: 1 / 0"),
}


@pytest.mark.parametrize("case", SICK)
def test_a_sick_plugin_is_reported_and_others_work(case: str, install: Install, golden: Callable[..., None]) -> None:
    install("zeta", SICK[case])
    install("theta", good("theta"))
    found = survey()
    assert isinstance(found, Discovery)
    assert "zeta" not in found.backends and found.backends["theta"].name == "theta"
    with pytest.raises(KeelError) as caught:
        find("zeta")
    assert str(caught.value) == str(found.problems["zeta"])
    golden(str(caught.value))


def test_a_name_that_two_packages_carry(install: Install, golden: Callable[..., None]) -> None:
    install("zeta", good())
    install("zeta", good(), package="zeta_pro")
    with pytest.raises(KeelError) as caught:
        find("zeta")
    golden(str(caught.value))


def test_an_unknown_name_gets_near_matches_and_the_list(install: Install, monkeypatch: pytest.MonkeyPatch,
                                                        golden: Callable[..., None]) -> None:
    install("zeta", good())
    points = installed()
    monkeypatch.setattr(HERE, "installed", lambda: {n: points[n] for n in ("cpp", "eager", "zeta")})
    with pytest.raises(KeelError) as caught:
        find("zetta")
    golden(str(caught.value), "near")
    with pytest.raises(KeelError) as caught:
        find("quantum")
    golden(str(caught.value), "far")


def test_asking_for_one_imports_only_that_one(install: Install) -> None:
    install("zeta", good())
    install("theta", "raise RuntimeError('should not be imported')")
    assert find("zeta").name == "zeta"
    assert "vendor_theta" not in sys.modules and {"zeta", "theta"} <= set(installed())


def test_discover_gives_the_usable_ones(install: Install) -> None:
    install("zeta", good())
    install("theta", SICK["probe"])
    found = discover()
    assert found["zeta"].api == API and "theta" not in found and found["eager"].last_resort


def backend(name: str, *, last: bool = False, api: int = API, probe: str | None = None) -> Backend:
    return Backend(name=name, device="cpu", supports=lambda call: None, compile=lambda gm: gm.forward, last_resort=last,
                   api=api, probe=lambda: probe)


def names(backends: tuple[Backend, ...]) -> list[str]:
    return [b.name for b in backends]


def test_eager_is_appended_unless_strict_or_there_is_a_last_resort(install: Install) -> None:
    install("zeta", good())
    assert names(resolve(["zeta"])) == ["zeta", "eager"]
    assert names(resolve(["zeta", backend("acme")])) == ["zeta", "acme", "eager"]
    assert names(resolve(["zeta"], strict=True)) == ["zeta"]
    assert names(resolve([backend("slow", last=True), "zeta"])) == ["slow", "zeta"]
    assert names(resolve(["eager"])) == ["eager"]
    assert names(resolve([])) == ["eager"]


def test_nothing_asked_for_is_what_can_run_here_of_the_reference_backends(
        monkeypatch: pytest.MonkeyPatch, install: Install) -> None:
    install("zeta", good())
    monkeypatch.setattr(HERE, "DEFAULT", ("elsewhere", "zeta"))
    assert names(resolve(None)) == names(resolve()) == ["zeta", "eager"]
    monkeypatch.setattr(HERE, "DEFAULT", ("elsewhere",))
    with pytest.raises(KeelError, match="no installed backend is named 'elsewhere'"):
        resolve(None)


@pytest.mark.parametrize("asked, strict, code", [
    ("cpp", False, "bad-option"), ([7], False, "bad-option"), ([backend("a"), backend("a")], False, "bad-option"),
    ([], True, "bad-option"), ([backend("a", api=0)], False, "api-version"),
    ([backend("a", probe="No a here.")], False, "not-here"), (["zzz"], False, "unknown-backend"),
])
def test_what_cannot_be_resolved(asked: object, strict: bool, code: str) -> None:
    with pytest.raises(KeelError) as caught:
        resolve(asked, strict=strict)                         # type: ignore[arg-type]
    assert caught.value.code == code and caught.value.do
