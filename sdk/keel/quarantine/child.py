"""The program that imports one plugin in a process of its own, and reports on a pipe how that went.

It is run by its path and uses the standard library alone, so that all that happens is the plugin's doing.  Arguments:
the number of the pipe, and JSON of ``path`` (what ``sys.path`` is), ``module`` and ``attributes``.
"""

import json
import os
import sys
import traceback
from importlib import import_module


def main() -> None:
    request = json.loads(sys.argv[2])
    pipe = int(sys.argv[1])
    sys.path[:] = request["path"]
    sys.argv[1:] = []
    report = {"raised": "", "trace": ""}
    try:
        value = import_module(request["module"])
        for name in request["attributes"]:
            value = getattr(value, name)
        _ask(getattr(value, "probe", None))
    except BaseException as raised:  # whatever it is: the process is there to be hurt
        message = "\n    ".join(line for line in str(raised).splitlines() if line.strip())
        report = {
            "raised": f"{type(raised).__name__}: {message}".removesuffix(": ")[:2000],
            "trace": "".join(traceback.format_exception(raised))[-8000:],
        }
    os.write(pipe, json.dumps(report).encode())
    os.close(pipe)


def _ask(probe: object) -> None:
    """Asks whether the backend can run here.  What that raises is found again where the answer counts."""
    try:
        if callable(probe):
            probe()
    except Exception:
        pass


if __name__ == "__main__":
    main()
