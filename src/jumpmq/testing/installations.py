"""Installations of RabbitMQ: on the machine, or in a folder with a separate Debian.

RabbitMQ in a folder runs by chroot, in a mount namespace of the process: two versions can run at the same time, and no
mount remains. `scripts/rabbitmq-folder` of the sources makes such a folder.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "JUMPMQ_RABBITMQ"
"""The environment variable with the folder to use; ``/`` is the machine's own installation."""

FOLDER = Path("/opt/jumpmq-rabbitmq")
"""Default folder of RabbitMQ, used if the variable is not set and the folder exists."""

MACHINE = Path("/")
LIBRARY = "usr/lib/rabbitmq"
INNER = "/mnt"
"""Mount point of a broker's directory within a folder."""

MOUNTS = 'for at in proc dev sys; do mount --rbind "/$at" "$0/$at"; done; mount --bind "$1" "$0/mnt"; shift'


@dataclass(frozen=True)
class Installation:
    """A RabbitMQ installation on the local machine.

    Attributes:
        root: the folder; ``/`` for the machine's own installation.
        version: version number, such as ``(4, 0, 5)``.
    """

    root: Path
    version: tuple[int, ...]

    @classmethod
    def at(cls, root: Path) -> Installation | None:
        """Return the Debian installation in a folder; None without an installation, or if it cannot be started."""
        servers = [*(root / LIBRARY / "lib").glob("rabbitmq_server-*")]
        versions = [found[1] for one in servers if (found := re.search(r"-(\d+(\.\d+)+)$", one.name))]
        if root == MACHINE:
            startable = all(map(shutil.which, ("erl", "epmd")))
        else:
            startable = os.geteuid() == 0 and all(map(shutil.which, ("unshare", "chroot", "mount")))
        if not (versions and startable):
            return None
        return cls(root, max(tuple(map(int, version.split("."))) for version in versions))

    @classmethod
    def all(cls) -> list[Installation]:
        """Return the installations found, newest first; only the one named by the environment, if set."""
        named = os.environ.get(VARIABLE)
        places = [Path(named)] if named else [MACHINE, FOLDER]
        found = [one for one in map(cls.at, places) if one is not None]
        return sorted(found, key=lambda one: one.version, reverse=True)

    @property
    def number(self) -> str:
        """Version as text."""
        return ".".join(map(str, self.version))

    def program(self, name: str) -> str:
        """Return the path of a RabbitMQ program within the folder."""
        return f"/{LIBRARY}/bin/{name}"

    def seen(self, directory: Path) -> Path:
        """Return the path, within the folder, of the directory given to `command`."""
        return directory if self.root == MACHINE else Path(INNER)

    def command(self, directory: Path, *command: str) -> list[str]:
        """Return the command line for a program of the installation, with a single outside directory visible."""
        if self.root == MACHINE:
            return list(command)
        script = f'{MOUNTS}; cd "$0" && exec chroot "$0" "$@"'
        return ["unshare", "--mount", "sh", "-ec", script, str(self.root), str(directory), *command]
