"""One broker per data directory: an advisory lock, released by the kernel however the holder dies."""

import fcntl
import os
from pathlib import Path

from jumpmq.store.errors import DirectoryInUse, StoreError

LOCK_NAME = "jumpmq.lock"


class DirectoryLock:
    """Holds ``directory/jumpmq.lock`` locked and the holder's process id in it, from creation to :meth:`release`.

    A missing directory is created.

    Raises:
        DirectoryInUse: another broker uses the directory.
        StoreError: the directory cannot be created or written to.
    """

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"cannot use {directory} as the data directory: {_reason(error)}; "
                "choose a directory that this user may write to"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, b"%d\n" % os.getpid(), 0)
        except BlockingIOError as error:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise DirectoryInUse(
                f"the data directory {directory} is in use by another broker (process {holder}); "
                "stop the other broker or choose another directory"
            ) from error
        except OSError as error:
            os.close(self._file)
            raise StoreError(f"cannot lock the data directory {directory}: {_reason(error)}") from error

    def fileno(self) -> int:
        """Return the descriptor of the lock file. A process that inherits the descriptor holds the lock, too."""
        return self._file

    def release(self) -> None:
        """Release the lock. The file stays: with its removal, another process could lock a file without a name."""
        os.close(self._file)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
