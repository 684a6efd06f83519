"""`jumpmq install-names`: installation of `jumpmqctl` under the names of RabbitMQ's tools, for scripts."""

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
    """Write a script per tool into a directory, and return the paths.

    Raises:
        OSError: the directory cannot be written.
        FileExistsError: the directory has another program with the name of a tool. No script is written.
    """
    paths = [directory / name for name in NAMES]
    for path in paths:
        if path.is_symlink() or (path.exists() and MARK not in path.read_text(errors="replace")):
            raise FileExistsError(17, "already exists, and is another program", str(path))
    directory.mkdir(parents=True, exist_ok=True)
    beside = Path(sys.executable).with_name("jumpmqctl")
    command = f"'{beside}'" if beside.exists() else f"'{shutil.which('jumpmqctl') or 'jumpmqctl'}'"
    for path in paths:
        path.write_text(SCRIPT.format(mark=MARK, command=command))
        path.chmod(0o755)
    return paths
