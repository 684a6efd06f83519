"""`jumpmq install-names`: installs `jumpmqctl` under the names of RabbitMQ's tools, for scripts."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

NAMES = (
    "rabbitmqctl",
    "rabbitmq-diagnostics",
    "rabbitmq-plugins",
    "rabbitmq-queues",
    "rabbitmq-streams",
    "rabbitmq-upgrade",
)
"""RabbitMQ's tools with verbs provided or answered by `jumpmqctl`."""

MARK = "# Written by jumpmq install-names."
SCRIPT = """#!/bin/sh
{mark}
exec {command} "$@"
"""


def install_names(directory: Path) -> list[Path]:
    """Write the scripts into a directory.

    Raises:
        OSError: the directory cannot be written.
        FileExistsError: a file of that name is there, and not one of these scripts; nothing is written then.
    """
    paths = [directory / name for name in NAMES]
    for path in paths:
        if path.is_symlink() or (path.exists() and MARK not in path.read_text(errors="replace")):
            raise FileExistsError(17, "is there already, from another program", str(path))
    directory.mkdir(parents=True, exist_ok=True)
    beside = Path(sys.executable).with_name("jumpmqctl")
    command = f"'{beside}'" if beside.exists() else f"'{shutil.which('jumpmqctl') or 'jumpmqctl'}'"
    for path in paths:
        path.write_text(SCRIPT.format(mark=MARK, command=command))
        path.chmod(0o755)
    return paths
