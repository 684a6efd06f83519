"""The types of the fixtures that run jumpmqctl."""

import subprocess
from collections.abc import Callable

Control = Callable[..., subprocess.CompletedProcess[str]]
"""From the arguments of jumpmqctl to its finished process."""

Output = Callable[..., str]
"""From the arguments of a successful jumpmqctl to its standard output."""

Failure = Callable[..., tuple[int, str]]
"""From the arguments of a failing jumpmqctl to its exit status and standard error."""
