"""Runs the scripts of docs/findings.md, each in a process of its own, and says which deviations still hold.

python docs/findings/run.py [--record | --check] [NAME...]

``standing.json`` has what each script said on each release of PyTorch that it was run on. ``--record`` writes down what
is seen; ``--check`` exits with 1 where that is not what is written.
"""

import argparse
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
STANDING = HERE / "standing.json"


def run(path: Path) -> tuple[str, str]:
    """What comes of a script: ``holds``, ``gone``, ``no end`` or ``broken``, and a sentence."""
    try:
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return "no end", ": 600 seconds were not enough."
    raised = any(line.startswith("Traceback") for line in done.stderr.splitlines())
    if done.returncode > 1 or (raised and done.returncode == 1):
        return "broken", f": {(done.stderr.strip().splitlines() or ['it says nothing'])[-1]}"
    return ("holds" if done.returncode else "gone"), ""  # below 0: the deviation took the process down


def main() -> str | int | None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("names", nargs="*", metavar="NAME")
    how = ask.add_mutually_exclusive_group()
    how.add_argument("--record", action="store_true")
    how.add_argument("--check", action="store_true")
    asked = ask.parse_args()
    scripts = sorted(p for p in HERE.glob("*.py") if p.name != Path(__file__).name)
    wanted = [p for p in scripts if not asked.names or p.stem in asked.names]
    if not wanted:
        return f"There is no such script; there are {', '.join(p.stem for p in scripts)}."
    release, standing = version("torch").partition("+")[0], json.loads(STANDING.read_text())
    held, other = 0, list[str]()
    for path in wanted:
        seen, sentence = run(path)
        print(f"{seen:10} {path.stem}{sentence}", flush=True)
        held += seen == "holds"
        if standing.get(path.stem, {}).get(release, seen) != seen:
            other.append(path.stem)
        if asked.record and seen in ("holds", "gone"):
            standing.setdefault(path.stem, {})[release] = seen
            STANDING.write_text(json.dumps(standing, indent=1, sort_keys=True) + "\n")
    print(f"{held} of {len(wanted)} hold.")
    if asked.check and other:
        return f"Not as written for PyTorch {release}: {', '.join(other)}."
    return None


sys.exit(main())
