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
    raised = any(line.startswith("Traceback") for line in done.stderr.splitlines())
    if done.returncode > 1 or (raised and done.returncode == 1):
        print(f"{'broken':10} {path.stem}: {(done.stderr.strip().splitlines() or ['it says nothing'])[-1]}", flush=True)
        continue
    held += done.returncode != 0                               # below 0: the deviation took the process down
    print(f"{'holds' if done.returncode else 'gone':10} {path.stem}", flush=True)
print(f"{held} of {len(wanted)} hold.")
