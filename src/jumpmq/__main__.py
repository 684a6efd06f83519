"""`jumpmq` and `python -m jumpmq`. The start of a broker imports no modules for further commands."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from jumpmq.cli.settings import CONFIG_VARIABLE, plainly_written


def main() -> None:
    """Run `jumpmq`; see :mod:`jumpmq.cli.jumpmq`."""
    options = plainly_written(sys.argv[2:]) if sys.argv[1:2] == ["serve"] else None
    if options is None:
        from jumpmq.cli.jumpmq import main as any_command

        any_command()
    else:
        gc.disable()  # imported modules are no garbage
        from jumpmq.cli.serve import run

        file = options.pop("config", None) or os.environ.get(CONFIG_VARIABLE)
        sys.exit(run(Path(file) if file else None, options))


if __name__ == "__main__":
    main()
