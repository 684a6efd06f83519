"""Reserved room for a full disk: enough to record settlements, and thereby to free segments."""

from pathlib import Path

from jumpmq.store.files import Files

RESERVE_BYTES = 4 << 20


class Reserve:
    """A removable file of a few megabytes."""

    def __init__(self, directory: Path, files: Files) -> None:
        self._path = directory / "reserve"
        self._files = files
        self._there = False

    def make(self) -> bool:
        """Create the file; return True if room sufficed."""
        if self._there:
            return True
        try:
            file = self._files.create(self._path)
            try:
                self._files.allocate(file, 0, RESERVE_BYTES)
            finally:
                self._files.close(file)
        except OSError:
            self.release()
            return False
        self._there = True
        return True

    def release(self) -> None:
        """Remove the file: its room becomes available."""
        self._there = False
        try:
            self._files.remove(self._path)
        except OSError:
            return
