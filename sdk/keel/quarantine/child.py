"""The program that imports one plugin in a separate process, and reports the result on a pipe.

It is run by its path and uses only the standard library, so that every effect comes from the plugin.  Arguments:
the number of the pipe, and JSON of ``path`` (what ``sys.path`` is), ``module`` and ``attributes``.
"""

import json
import os
import sys
import traceback
from importlib import import_module


def main() -> None:
    asked = json.loads(sys.argv[2])
    pipe = int(sys.argv[1])
    sys.path[:] = asked["path"]
    sys.argv[1:] = []
    report = {"raised": "", "trace": ""}
    try:
        value = import_module(asked["module"])
        for name in asked["attributes"]:
            value = getattr(value, name)
        _ask(getattr(value, "probe", None))
    except BaseException as raised:  # anything: this process may be harmed
        said = "\n    ".join(line for line in str(raised).splitlines() if line.strip())
        report = {
            "raised": f"{type(raised).__name__}: {said}".removesuffix(": ")[:2000],
            "trace": "".join(traceback.format_exception(raised))[-8000:],
        }
    os.write(pipe, json.dumps(report).encode())
    os.close(pipe)


def _ask(probe: object) -> None:
    """Asks whether the backend can run here.  An exception will be raised again where the answer counts."""
    try:
        if callable(probe):
            probe()
    except Exception:
        pass


if __name__ == "__main__":
    main()
