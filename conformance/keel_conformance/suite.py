"""The cases as tests, for a vendor's own repository: ``from keel_conformance.suite import *`` in a test module.

Options of pytest's ini file, or fixtures of the same names that a conftest overrides: ``keel_backend`` (what to judge),
``keel_profile``, ``keel_tier``, ``keel_ops`` (patterns), ``keel_seed``, ``keel_waivers`` (a TOML file), and
``keel_in_process``, true to run cases in the process of the tests, where a debugger reaches them and a crash ends all.
With pytest-xdist, ``--dist loadgroup`` keeps together what is compiled together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from .cases.case import Case
from .devices import check_registered
from .harness import waivers
from .harness.backend_under_test import load_backend
from .harness.executor import Executor
from .harness.parallel_plan import plan_in_parallel
from .harness.protocol import Settings
from .harness.scheduler import Scheduler, batches, queues, run_inline
from .levels.level import profile_of
from .results.verdict import BAD, Verdict

__all__ = ["keel_backend", "keel_verdicts", "pytest_generate_tests", "test_conforms", "test_waivers_hold"]

NOT_JUDGED = ("not claimed", "not run")


@pytest.fixture(scope="session")
def keel_backend(pytestconfig: pytest.Config) -> str:
    """The backend to judge: an installed one, ``module:attribute``, or one of ``torch.compile``."""
    name = str(pytestconfig.getini("keel_backend"))
    if not name:
        pytest.fail("Which backend is to be judged? keel_backend in pytest's ini file says it, or a fixture.")
    return name


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each case of the plan, named by it."""
    if "keel_case" in metafunc.fixturenames:
        cases = _plan(metafunc.config)
        group = {c.id: f"keel-{k}" for k, lane in enumerate(queues(cases)) for c in lane}
        metafunc.parametrize(
            "keel_case", [pytest.param(c, id=c.id, marks=_marks(metafunc.config, group[c.id])) for c in cases]
        )


@pytest.fixture(scope="session")
def keel_verdicts(
    pytestconfig: pytest.Config,
    keel_backend: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Verdicts]:
    """The verdict on each case that is asked for, with those of the cases that are compiled with it."""
    under_test = load_backend(keel_backend)  # a wrong name fails once, here
    if not pytestconfig.getini("keel_in_process"):
        check_registered(keel_backend, under_test.device)
    settings = Settings(keel_backend, memory=None if pytestconfig.getini("keel_in_process") else Settings.memory)
    verdicts = Verdicts(
        _plan(pytestconfig),
        Scheduler(settings, tmp_path_factory.mktemp("keel")),
        None if pytestconfig.getini("keel_in_process") else Executor(),
    )
    with closing(verdicts):
        yield verdicts


class Verdicts:
    """Verdicts as they are asked for. ``executor`` runs the steps in processes; without one they run inline."""

    def __init__(self, plan: tuple[Case, ...], scheduler: Scheduler, executor: Executor | None):
        self._batch = {c.id: batch for lane in queues(plan) for batch in batches(lane) for c in batch}
        self._scheduler, self._executor = scheduler, executor
        self._found: dict[str, Verdict] = {}

    def verdict(self, case: Case) -> Verdict:
        if case.id not in self._found:
            steps = self._scheduler.resolve(self._batch[case.id])
            verdicts = run_inline(steps) if self._executor is None else self._executor.run(steps)
            self._found |= {v.case: v for v in verdicts}
        return self._found[case.id]

    def all_verdicts(self) -> list[Verdict]:
        return list(self._found.values())

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()


def test_conforms(keel_case: Case, keel_verdicts: Verdicts, keel_backend: str, pytestconfig: pytest.Config) -> None:
    """The backend gives what the case has to give, or does not claim it."""
    accepted = _waivers(pytestconfig, keel_backend)
    (verdict,) = waivers.apply_waivers([keel_verdicts.verdict(keel_case)], accepted, date.today())
    if verdict.status in BAD:
        pytest.fail(
            " ".join(filter(None, [f"{verdict.status}: {verdict.sentence}", verdict.clause and f"[{verdict.clause}]"])),
            pytrace=False,
        )
    level = profile_of(str(pytestconfig.getini("keel_profile"))).level
    if verdict.status == "not claimed" and level is not None and level.requires(keel_case):
        pytest.fail(f"missing: {level.name} requires it. {verdict.sentence}", pytrace=False)
    if verdict.status in NOT_JUDGED:
        pytest.skip(f"{verdict.status}: {verdict.sentence}")
    if verdict.status in ("waived", "xfail"):
        pytest.xfail(verdict.sentence)


def test_waivers_hold(keel_verdicts: Verdicts, keel_backend: str, pytestconfig: pytest.Config) -> None:
    """No waiver has expired or matches nothing, and no more is waived than may be."""
    cases, full_plan = [c.id for c in _plan(pytestconfig)], not pytestconfig.getini("keel_ops")
    accepted, today = _waivers(pytestconfig, keel_backend), date.today()
    verdicts = keel_verdicts.all_verdicts()
    wrong = [
        *waivers.problems(verdicts, accepted, cases, today, full_plan=full_plan),
        *waivers.excess(waivers.apply_waivers(verdicts, accepted, today), full_plan=full_plan),
    ]
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


def _plan(config: pytest.Config) -> tuple[Case, ...]:
    return plan_in_parallel(
        profile=str(config.getini("keel_profile")),
        tier=str(config.getini("keel_tier")),
        seed=int(config.getini("keel_seed")),
        ops=list(config.getini("keel_ops")),
    )


def _waivers(config: pytest.Config, backend: str) -> tuple[waivers.Waiver, ...]:
    file = str(config.getini("keel_waivers"))
    return waivers.read(Path(config.rootpath, file), backend) if file else ()


def _marks(config: pytest.Config, group: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.xdist_group(group)] if config.pluginmanager.hasplugin("xdist") else []
