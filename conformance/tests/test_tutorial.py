"""The tutorial's commands run in order, as they stand on the page.

The venv of the first block has what is installed here, since PyTorch is too large to be installed in a test, and the
conformance suite judges one operator. ``make tutorial`` runs the page as it is, in a new venv with the wheel.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "README.md"
SOME = "--op sqrt --minimize 0"
SCRIPTS = {
    "pip": 'exec python -m pip --no-input "$@"',
    "pytest": 'exec python -m pytest -p no:cacheprovider "$@"',
    "keel": 'case "$1 $2" in "conform --backend") set -f; set -- "$@" ' + SOME + '; esac\nexec python -m keel.cli "$@"',
}


def blocks() -> list[str]:
    return re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_tutorial_leads_to_a_certificate(tmp_path: Path) -> None:
    install, *others = blocks()
    assert 'pip install --quiet "torch-keel[conform]"' in install
    venv.create(tmp_path / "venv", symlinks=True)
    [packages] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    # Packages that are installed editable are found by the .pth files of the folder that they are installed in.
    (packages / "here.pth").write_text(
        "\n".join(
            f"import site; site.addsitedir({p!r})" if p.endswith("site-packages") else p
            for p in sys.path
            if p and not p.endswith(".zip")
        )
    )
    for name, script in SCRIPTS.items():
        file = tmp_path / "venv" / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    environment = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    }
    environment |= {"KEEL_CACHE_DIR": str(tmp_path / "cache"), "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"}
    program = "set -euo pipefail\nsource venv/bin/activate\n" + "echo next block\n".join(others)
    done = subprocess.run(["bash", "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    backends, created, tried, explained, added, judged, certified = done.stdout.split("next block\n")
    assert "cpp" in backends and "keel_acme" in created and "acme" in tried and " passed" in tried
    assert "acme has no aten.sqrt.default." in explained and "acme has no aten" not in added
    assert "acme takes 4 calls, eager takes 0 calls." in added
    assert judged and (tmp_path / "keel_acme" / "run" / "report.html").is_file()
    assert "acme is right in all that it claims of core" in certified and certified.endswith("The certificate holds.\n")
