"""Types of the fixtures that run jumpmqctl."""

import subprocess
from collections.abc import Callable

Control = Callable[..., subprocess.CompletedProcess[str]]
"""Maps arguments of jumpmqctl to its finished process."""

Output = Callable[..., str]
"""Maps arguments of a successful jumpmqctl to its standard output."""

Failure = Callable[..., tuple[int, str]]
"""Maps arguments of a failing jumpmqctl to its exit status and standard error."""
