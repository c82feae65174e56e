"""Runs the scripts of docs/findings.md, each in a process of its own, and says which deviations still hold.

python docs/findings/run.py [NAME...]
"""
import subprocess
import sys
from pathlib import Path

scripts = sorted(p for p in Path(__file__).parent.glob("*.py") if p.name != Path(__file__).name)
wanted = [p for p in scripts if not sys.argv[1:] or p.stem in sys.argv[1:]]
if not wanted:
    sys.exit(f"There is no such script; there are {', '.join(p.stem for p in scripts)}.")
held = 0
for path in wanted:
    try:
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        print(f"{'no end':10} {path.stem}: 600 seconds were not enough.", flush=True)
        continue
    said = (done.stderr.strip().splitlines() or [f"It exited with {done.returncode}."])[-1]
    broken = done.returncode not in (0, 1) or any(x.startswith("Traceback") for x in done.stderr.splitlines())
    held += done.returncode == 1 and not broken
    status = "broken" if broken else ("gone", "holds")[done.returncode]
    print(f"{status:10} {path.stem}" + (f": {said}" if broken else ""), flush=True)
print(f"{held} of {len(wanted)} hold.")
