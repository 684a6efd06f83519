"""Installed clients in other languages, as packaged by Debian."""

import shutil
import subprocess
from pathlib import Path

JARS = [Path("/usr/share/java") / name for name in ("amqp-client.jar", "slf4j-api.jar", "slf4j-nop.jar")]
"""Jar files of the Java client, for a class path."""

PLUGINS = next(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/plugins"), None)
"""Folder of the Erlang client in the server's package."""

has_java = shutil.which("javac") is not None and all(jar.exists() for jar in JARS)

has_erlang = PLUGINS is not None and any(PLUGINS.glob("amqp_client-*")) and shutil.which("escript") is not None


def bunny_is_installed() -> bool:
    ruby = shutil.which("ruby")
    return ruby is not None and subprocess.run([ruby, "-rbunny", "-e", ""], capture_output=True).returncode == 0
