"""The first import of a plugin happens in a process of its own: what it does there is a sentence, and nothing else."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path

import pytest

from keel.quarantine import Report, first_imports

Package = Callable[..., EntryPoint]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """``package(name, source)`` makes a module and gives an entry point of its ``backend``."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("KEEL_QUARANTINE", raising=False)

    def make(name: str, source: str = "backend = 7", *, requires: str = "") -> EntryPoint:
        site = tmp_path / "site"
        site.mkdir(exist_ok=True)
        (site / f"{name}.py").write_text(source)
        point = EntryPoint(f"{name}", f"{name}:backend", "keel.backends")
        if requires:
            info = site / f"{name}-1.0.dist-info"
            info.mkdir(exist_ok=True)
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: {requires}\n"
            )
            return point._for(Distribution.at(info))
        return point

    return make


BAD = {
    "exits at once": ("import os; os._exit(3)", "ended its process with status 3"),
    "exits quietly": ("import os; os._exit(0)", "ended its process with status 0"),
    "dies": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "died of SIGSEGV"),
    "aborts": ("import os; print('0x17: no firmware'); os.sys.stdout.flush(); os.abort()", "died of SIGABRT"),
    "reads nowhere": ("import ctypes; ctypes.string_at(0)", "died of SIGSEGV"),
    "hangs": ("import time; time.sleep(600)", "took longer than"),
    "hangs and ignores signals": (
        "import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(600)",
        "took longer than",
    ),
    "prints for ever": ("while True: print('x' * 1000)", "took longer than"),
    "hangs in its probe": ("import time\nclass backend:\n  def probe(): time.sleep(600)", "took longer than"),
    "closes all files": ("import os; os.closerange(0, 100)", "ended its process with status"),
    "dies at the end": ("import atexit, os; atexit.register(os.abort); backend = 7", "after it was imported"),
    "lets no process end": (
        "import atexit, time; atexit.register(time.sleep, 600); backend = 7",
        "does not let its process end",
    ),
}


@pytest.mark.slow
def test_what_hurts_its_process_is_a_sentence(package: Package) -> None:
    points = [package(f"bad{i}", source) for i, (source, _) in enumerate(BAD.values())]
    started = time.monotonic()
    reports = first_imports(points, limit=5.0)
    assert time.monotonic() - started < 120
    for (case, (_, sentence)), report in zip(BAD.items(), reports, strict=True):
        assert sentence in report.problem and not report.raised, (case, report)
    assert next(r.last_output for r, case in zip(reports, BAD, strict=True) if case == "aborts") == "0x17: no firmware"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import quantum_flux", "ModuleNotFoundError: No module named 'quantum_flux'"),
        ("import sys; sys.exit('no license')", "SystemExit: no license"),
        ("raise ValueError('no license\\n\\nask acme')", "ValueError: no license\n    ask acme"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("class Odd(BaseException): pass\nraise Odd('very')", "Odd: very"),
        ("def backend(:", "SyntaxError: invalid syntax"),
        ("other = 7", "AttributeError: module 'bad' has no attribute 'backend'"),
        ("class backend:\n  def probe(): raise SystemExit(2)", "SystemExit: 2"),
    ],
)
def test_what_it_raises_is_told_and_not_remembered(source: str, said: str, package: Package) -> None:
    point = package("bad", source)
    [report] = first_imports([point])
    assert report.raised.startswith(said) and "Traceback" in report.trace and not report.problem
    package("bad", "backend = 7")
    assert first_imports([point]) == [Report()]


def test_what_is_good_is_remembered_until_its_files_change(package: Package, tmp_path: Path) -> None:
    count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')\n"
    point = package("good", count + "backend = 7")

    def imports() -> int:
        return len((tmp_path / "count").read_text())

    assert first_imports([point]) == first_imports([point]) == [Report()] and imports() == 1
    os.utime(tmp_path / "site" / "good.py", (0, 0))  # the same content is as good
    assert first_imports([point]) == [Report()] and imports() == 1
    assert first_imports([point], again=True) == [Report()] and imports() == 2
    package("good", count + "import os; os._exit(1)")
    assert "status 1" in first_imports([point])[0].problem and imports() == 3
    assert "status 1" in first_imports([point])[0].problem and imports() == 3
    assert "status 1" in first_imports([point], again=True)[0].problem and imports() == 4


@pytest.mark.slow
def test_what_took_too_long_is_tried_again_where_more_time_is_given(package: Package) -> None:
    point = package("slow", "import time; time.sleep(1.5); backend = 7")
    assert "longer than 0.5 seconds" in first_imports([point], limit=0.5)[0].problem
    assert "longer than 0.5 seconds" in first_imports([point], limit=0.2)[0].problem  # remembered
    assert first_imports([point], limit=60.0) == first_imports([point], limit=0.2) == [Report()]


@pytest.mark.slow
def test_an_import_that_ends_just_in_time_has_time_to_end(package: Package) -> None:
    source = "import atexit, time; atexit.register(time.sleep, 3); time.sleep(1); backend = 7"
    assert first_imports([package("late", source)], limit=3.0) == [Report()]


def test_a_package_whose_requirement_changes_is_new(package: Package, tmp_path: Path) -> None:
    count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')\nbackend = 7"
    point = package("good", count, requires="driver>=1; python_version > '3'")
    driver = tmp_path / "site" / "driver-1.0.dist-info"
    driver.mkdir()
    for number, expected in (("1.0", 1), ("1.0", 1), ("1.1", 2)):
        (driver / "METADATA").write_text(f"Metadata-Version: 2.1\nName: driver\nVersion: {number}\n")
        assert first_imports([point]) == [Report()]
        assert len((tmp_path / "count").read_text()) == expected


def test_what_a_package_writes_beside_its_code_does_not_make_it_new(package: Package, tmp_path: Path) -> None:
    folder = tmp_path / "site" / "writes"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(
        f"import time; open({str(tmp_path / 'count')!r}, 'a').write('x')\n"
        f"open({str(folder / 'log.txt')!r}, 'a').write(str(time.time()))\nbackend = 7\n"
    )
    (folder / "kernels.py").write_text("")
    point = EntryPoint("writes", "writes:backend", "keel.backends")
    for code, expected in (("", 1), ("", 1), ("x = 1\n", 2)):
        (folder / "kernels.py").write_text(code)
        assert first_imports([point]) == [Report()] and len((tmp_path / "count").read_text()) == expected


def test_the_files_of_an_installed_package_are_those_of_its_record(package: Package, tmp_path: Path) -> None:
    count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')\nbackend = 7"
    point = package("listed", count, requires="torch")
    site = tmp_path / "site"
    (site / "data.bin").write_bytes(b"1")
    (site / "listed-1.0.dist-info" / "RECORD").write_text("listed.py,,\ndata.bin,,\nlisted-1.0.dist-info/RECORD,,\n")
    for data, expected in ((b"1", 1), (b"1", 1), (b"2", 2)):
        (site / "data.bin").write_bytes(data)
        assert first_imports([point]) == [Report()] and len((tmp_path / "count").read_text()) == expected


def test_nothing_is_left_running(package: Package, tmp_path: Path) -> None:
    child = tmp_path / "child"
    point = package(
        "forks",
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(child)!r}, 'w').write(str(p.pid))\nbackend = 7",
    )
    assert first_imports([point]) == [Report()]
    number = int(child.read_text())
    for _ in range(200):
        if not Path(f"/proc/{number}").exists() or " Z " in Path(f"/proc/{number}/stat").read_text():
            break
        time.sleep(0.05)
    else:
        pytest.fail("a process that the import started is alive")


def test_no_process_is_started_for_what_is_imported_or_turned_off(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = package("known", f"open({str(tmp_path / 'count')!r}, 'a')\nbackend = 7")
    with monkeypatch.context() as patch:
        patch.setenv("KEEL_QUARANTINE", "0")
        assert first_imports([point]) == [Report()]
    monkeypatch.setitem(sys.modules, "known", os)
    assert first_imports([point]) == [Report()] and not (tmp_path / "count").exists()


def test_a_plugin_that_looks_for_itself_starts_no_more_processes(package: Package) -> None:
    point = package("loops", "import os\nassert os.environ['KEEL_QUARANTINE'] == '0'\nbackend = 7")
    assert first_imports([point]) == [Report()]


@pytest.mark.slow
def test_an_interrupt_ends_the_import_and_reaches_the_user(package: Package) -> None:
    point = package("slow", "import time; time.sleep(600)")
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        first_imports([point])
    assert time.monotonic() - started < 30


def test_damaged_memory_is_no_memory(package: Package, tmp_path: Path) -> None:
    point = package("good")
    assert first_imports([point]) == [Report()]
    for file in (tmp_path / "cache").iterdir():
        file.write_bytes(b"[7]")
    assert first_imports([point]) == [Report()]
