"""Plugins found by entry point, the healthy and the sick."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from keel.cost import Cost
from keel.discovery import Discovery, discover, find, installed, installed_for, resolve, survey
from keel.errors import KeelError
from keel.plugin import API, Backend
from keel.settings import Settings, read_settings, with_plugins
from keel.types import Call, TensorType

HERE = sys.modules["keel.discovery"]
HEAD = "from keel.plugin import Backend, LoopTarget\n"
GOOD = 'backend = Backend(name="{0}", device="cpu", supports=lambda call: None, compile=lambda gm: gm.forward{1})'

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """``install(name, source)`` makes a distribution ``vendor-<name>`` with a module ``vendor_<name>``."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("KEEL_QUARANTINE", "0")  # how they fare there is tested on its own, and takes time

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
    "raises for its class": "class Shy:\n    __class__ = property(lambda self: 1 / 0)\nbackend = Shy()",
    "raises when it is asked": "class Shy:\n    def __getattr__(self, name): raise SystemExit(3)\nbackend = Shy()",
    "raises what cannot be printed": "class Shy(Exception):\n    def __str__(self): return 1 / 0\nraise Shy",
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


def test_a_name_that_two_packages_carry_belongs_to_one(install: Install, golden: Callable[..., None]) -> None:
    install("zeta", good(), package="zeta_pro")
    install("zeta", good())
    install("eager", "raise SystemExit('never imported')", package="aardvark")
    found = survey()
    assert installed()["zeta"][0].dist.name == "vendor-zeta" and find("zeta") is found.backends["zeta"]
    assert find("eager").last_resort and found.backends["eager"] is find("eager")
    assert "vendor_aardvark" not in sys.modules and "vendor_zeta_pro" not in sys.modules
    golden(str(found.problems["zeta of vendor-zeta_pro"]))
    golden(str(found.problems["eager of vendor-aardvark"]), "own")


def test_a_name_belongs_to_the_package_that_is_called_like_it(install: Install, tmp_path: Path) -> None:
    install("zeta", good())
    install("zeta", good(), package="zeta_pro")
    (tmp_path / "vendor_zeta_pro-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: Keel.Zeta\nVersion: 1.0\n"
    )
    (tmp_path / "vendor_zeta_pro-1.0.dist-info").rename(tmp_path / "keel_zeta-1.0.dist-info")
    assert [point.dist.name for point in installed()["zeta"] if point.dist] == ["Keel.Zeta", "vendor-zeta"]


MALFORMED = {
    "no value": "[keel.backends]\nzeta\n",
    "no name": "[keel.backends]\n= vendor_zeta:backend\n",
    "no section": "zeta = vendor_zeta:backend\n",
    "twice": "[keel.backends]\nzeta = a:b\nzeta = c:d\n",
    "no module": "[keel.backends]\nzeta = :backend\n",
    "odd": "[keel.backends]\nzeta = !!\n",
    "a space": "[keel.backends]\nze ta = vendor_zeta:backend\n",
    "binary": "\x00\x01[keel.backends]\n=\n",
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_entry_points_trouble_nobody(case: str, install: Install, tmp_path: Path) -> None:
    install("zeta", good())
    install("theta", good("theta"))
    (tmp_path / "vendor_zeta-1.0.dist-info" / "entry_points.txt").write_text(MALFORMED[case])
    found = survey()
    assert {"theta", "eager", "cpp"} <= found.backends.keys() and "zeta" not in found.backends
    assert find("theta").name == "theta"
    if case in ("no section", "binary"):  # no line is [keel.backends]: it carries nothing of Keel's
        return
    with pytest.raises(KeelError, match="zeta") as caught:
        find("zeta")
    assert "zeta" in found.problems or found.damaged.keys() == {"vendor-zeta"} == caught.value.reasons.keys() - {
        "installed"
    }


def test_a_distribution_without_metadata(install: Install, tmp_path: Path) -> None:
    install("zeta", good())
    (tmp_path / "vendor_zeta-1.0.dist-info" / "METADATA").unlink()
    found = survey()
    assert {"zeta", "eager"} <= found.backends.keys()
    assert "Its METADATA is missing or has no name." in str(found.damaged["vendor_zeta"])


def test_what_a_distribution_says_in_its_metadata_does_not_make_it_keels(install: Install, tmp_path: Path) -> None:
    install("eager", "raise SystemExit('never imported')", package="aardvark")
    (tmp_path / "vendor_aardvark-1.0.dist-info" / "METADATA").write_text("Name: torch-keel\nVersion: 1.0\n")
    found = survey()
    assert found.backends["eager"].last_resort and "vendor_aardvark" not in sys.modules
    assert "eager of vendor_aardvark" in found.problems
    assert "has the name 'torch-keel'" in str(found.damaged["vendor_aardvark"])


QUIET = (
    good("theta")
    + """
import os, signal, sys, warnings, torch
print("Theta SDK 3")
os.chdir("/")
signal.signal(signal.SIGINT, signal.SIG_IGN)
torch.set_default_dtype(torch.float64)
warnings.warn("theta is old", DeprecationWarning)
"""
)


@pytest.mark.slow
def test_what_packages_do_when_they_are_imported_costs_a_row_each(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KEEL_QUARANTINE")
    sick = {
        "leaves": "import os; os._exit(0)",
        "hangs": "import time; time.sleep(600)",
        "dies": "import os; os.abort()",
        "quits": "raise SystemExit",
        "odd": "raise BaseException('odd')",
    }
    for name, source in sick.items():
        install(name, source)
    install("theta", QUIET)
    folder, handler = os.getcwd(), signal.getsignal(signal.SIGINT)
    found = survey(limit=40.0)
    assert found.backends.keys() >= {"theta", "eager", "cpp"} and sick.keys() <= found.problems.keys()
    assert {found.problems[name].code for name in sick} == {"broken-plugin"}
    assert (os.getcwd(), signal.getsignal(signal.SIGINT), torch.get_default_dtype()) == (folder, handler, torch.float32)
    assert found.notes == {"theta": ["the current folder", "signal handlers", "PyTorch's default dtype"]}
    assert capsys.readouterr().out == "" and "vendor_leaves" not in sys.modules
    for name, words in (("leaves", "status 0"), ("hangs", "longer than 40 seconds"), ("dies", "SIGABRT")):
        with pytest.raises(KeelError, match=words):  # as is remembered, at once
            find(name, limit=40.0)


def test_what_a_probe_changes_is_put_back(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("zeta", "import os\ndef probe():\n    print('probing')\n    os.chdir('/')\n" + good(more=", probe=probe"))
    folder = os.getcwd()
    assert survey().notes == {"zeta": ["the current folder"]}
    assert os.getcwd() == folder and capsys.readouterr().out == ""


def test_a_plugin_of_the_first_version_works(install: Install) -> None:
    install("zeta", good(more=", api=1"))
    assert find("zeta").api == 1


def test_what_is_raised_in_this_process_is_the_plugins_but_an_interrupt(install: Install) -> None:
    install("zeta", "raise SystemExit(3)")
    install("theta", "class Odd(BaseException): pass\nraise Odd")
    install("kappa", good("kappa", ", probe=lambda: sys.exit(1)") + "\nimport sys")
    install("iota", "raise KeyboardInterrupt")
    for name, said in (("zeta", "SystemExit: 3"), ("theta", "Odd"), ("kappa", "its probe raised")):
        with pytest.raises(KeelError, match=said):
            find(name)
    with pytest.raises(KeyboardInterrupt):
        find("iota")


@pytest.mark.parametrize("answer", ["''", "7", "b'no'", "True"])
def test_an_answer_of_a_probe_that_is_none(answer: str, install: Install) -> None:
    install("zeta", good(more=f", probe=lambda: {answer}"))
    with pytest.raises(KeelError, match="its probe returned"):
        find("zeta")


def test_an_unknown_name_gets_near_matches_and_the_list(
    install: Install, monkeypatch: pytest.MonkeyPatch, golden: Callable[..., None]
) -> None:
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
    return Backend(
        name=name,
        device="cpu",
        supports=lambda call: None,
        compile=lambda gm: gm.forward,
        last_resort=last,
        api=api,
        probe=lambda: probe,
    )


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
    monkeypatch: pytest.MonkeyPatch, install: Install
) -> None:
    install("zeta", good())
    monkeypatch.setattr(HERE, "DEFAULT", ("elsewhere", "zeta"))
    assert names(resolve(None)) == names(resolve()) == ["zeta", "eager"]
    monkeypatch.setattr(HERE, "DEFAULT", ("elsewhere",))
    with pytest.raises(KeelError, match="no installed backend is named 'elsewhere'"):
        resolve(None)


@pytest.mark.parametrize(
    ("asked", "strict", "code"),
    [
        ("cpp", False, "bad-option"),
        ([7], False, "bad-option"),
        ([backend("a"), backend("a")], False, "bad-option"),
        ([], True, "bad-option"),
        ([backend("a", api=0)], False, "api-version"),
        ([backend("a", probe="No a here.")], False, "not-here"),
        (["zzz"], False, "unknown-backend"),
    ],
)
def test_what_cannot_be_resolved(asked: object, strict: bool, code: str) -> None:
    with pytest.raises(KeelError) as caught:
        resolve(asked, strict=strict)  # type: ignore[arg-type]
    assert caught.value.code == code and caught.value.do


ALONE = Backend(name="alone", device="cpu", supports=lambda call: None, compile=lambda gm: gm.forward)


@pytest.mark.parametrize("variable", ["KEEL_CACHE_SIZE", "KEEL_COMPILER_TIMEOUT"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda: find("cpp"),
        survey,
        lambda: resolve([ALONE], strict=True),
        lambda: torch.compile(lambda x: x + 1, backend="keel")(torch.ones(3)),
    ],
    ids=["find", "survey", "resolve", "compile"],
)
def test_a_malformed_variable_is_an_error_of_its_own(
    variable: str, ask: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "garbage")
    torch.compiler.reset()
    with pytest.raises(KeelError, match=f"{variable}=garbage") as raised:
        ask()
    assert raised.value.code == "bad-option"


def on(device: str, name: str) -> str:
    return good(name).replace('device="cpu"', f'device="{device}"')


def test_plugins_for_a_device_are_found_without_a_name(install: Install) -> None:
    install("zeta", on("acme", "zeta"))
    install("eta", on("acme", "eta"))
    install("theta", on("other", "theta"))
    install("iota", SICK["raises"])
    assert [b.name for b in installed_for({"acme", "cuda"})] == ["eta", "zeta"]
    assert installed_for(()) == installed_for({"cpu"}) == ()


def test_plugins_for_a_device_come_before_the_default_backends(install: Install) -> None:
    install("zeta", on("acme", "zeta"))
    install("eta", good("eta"))
    default, named = read_settings(None, {}), read_settings(None, {"backends": ["cpp"]})
    names = [b.name for b in default.backends]
    assert [b.name for b in with_plugins(default, {"acme", "cpu"}).backends] == ["zeta", *names]
    assert with_plugins(default, {"cpu", "meta"}) == default and with_plugins(named, {"acme"}) == named


def test_placement_by_cost_needs_the_sheets_of_all_plugins(install: Install) -> None:
    install("zeta", on("acme", "zeta"))
    settings = read_settings(None, {"placement": "cost"})
    with pytest.raises(KeelError, match="zeta has no data sheet"):
        with_plugins(settings, {"acme"})


SHEET = Cost(flops={torch.float32: 1e9}, scalars=1e9, bandwidth=1e10)


def sheet(name: str, *costs: Cost) -> list[Cost | None]:
    """The sheets of the plugin that a default compilation for the device ``acme`` uses, with ``costs`` passed."""
    settings = read_settings(None, {"costs": {name: costs[0]}} if costs else {})
    return [b.cost for b in with_plugins(settings, {"acme"}).backends if b.name == "zeta"]


def test_data_sheets_reach_plugins_that_are_chosen_by_device(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("zeta", on("acme", "zeta"))
    assert sheet("zeta") == [None] and sheet("eta", SHEET) == [None] and sheet("zeta", SHEET) == [SHEET]
    file = tmp_path / "sheets.json"
    file.write_text(json.dumps({"sheets": {"zeta": SHEET.as_json()}}))
    monkeypatch.setenv("KEEL_COSTS", str(file))
    assert sheet("zeta") == [SHEET]
    settings = read_settings(None, {"placement": "cost"})
    file.unlink()  # it was read when the options were
    assert with_plugins(settings, {"acme"}).placement == "cost"


def test_a_mode_that_measures_does_so_if_the_plugins_have_data_sheets(install: Install) -> None:
    install("zeta", on("acme", "zeta"))
    install("eta", on("other", "eta"))
    settings = read_settings("max-autotune", {"costs": {"zeta": SHEET}})
    placements = [with_plugins(settings, devices).placement for devices in ({"cpu"}, {"acme"}, {"other"})]
    assert placements == ["measured", "measured", "auto"]


def refused(settings: Settings) -> dict[str, str | None]:
    """Why each backend refuses a sine on the host."""
    tensor = TensorType.dense(torch.float32, (2,))
    call = Call(torch.ops.aten.sin.default, (tensor,), {}, (tensor,))
    answers = {b.name: b.supports(call) for b in settings.backends if callable(b.supports)}
    return {name: None if said is None else str(said) for name, said in answers.items()}


def test_pins_reach_plugins_that_are_chosen_by_device(install: Install) -> None:
    install("zeta", on("acme", "zeta"))
    pinned_to_it, pinned_away = (read_settings(None, {"pins": {"sin": who}}) for who in ("zeta", "cpp"))
    why = "aten.sin.default is pinned to zeta."
    found = refused(with_plugins(pinned_to_it, {"acme", "cpu"}))
    assert found.pop("zeta") != why and {*found.values()} == {why}
    found = refused(with_plugins(pinned_away, {"acme", "cpu"}))
    assert found["cpp"] is None and found["zeta"] == found["eager"] == "aten.sin.default is pinned to cpp."
    assert {*refused(with_plugins(pinned_to_it, {"cpu"})).values()} == {why}, "a graph on another device"


@pytest.mark.parametrize("who", ["zeta", "nobody"])
def test_pins_to_what_no_graph_can_have_are_an_error(who: str, install: Install) -> None:
    install("zeta", good())  # for a device on which the default backends work
    settings = read_settings(None, {"pins": {"sin": who}})
    for devices in ({"cpu"}, {"acme"}):
        with pytest.raises(KeelError, match=f"sin cannot be pinned to '{who}'") as raised:
            with_plugins(settings, devices)
        assert raised.value.code == "bad-option" and "cpp" in (raised.value.reasons or {})["backends"]
