"""``keel``: the script, which says what to install where typer is not."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from keel.errors import KeelError
from keel.extras import require


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    try:
        require("cli", "The command line")
    except KeelError as error:
        print(error, file=sys.stderr)
        return 1
    from keel.command_line import run

    return run(sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    sys.exit(main())
