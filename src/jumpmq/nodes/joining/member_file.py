"""The membership of a home with copies as a file, known before the home's store may be opened.

The file ``member`` is a line of JSON and a line with its CRC-32. The file exists from the first wish for copies on, and
is never deleted. A start with the file waits until the home's replica leads, and then opens the store.
"""

from dataclasses import asdict
from pathlib import Path

from jumpmq.nodes.joining.joining import Membership
from jumpmq.nodes.replicas.copy_directory import NOTE, Noted
from jumpmq.replication.lineage import before, position_at
from jumpmq.store import Store, checked_file
from jumpmq.store.errors import StoreError
from jumpmq.store.files import Files

FILE = "member"
"""Name of the file in the data directory."""


def read_member(directory: Path) -> Membership | None:
    """Return the membership of a home with copies; None without the file.

    Raises:
        StoreError: the file is damaged or cannot be read.
    """
    path = directory / FILE
    try:
        return Membership(**checked_file.decoded(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error}); move {directory} away, and the home is copied again") from error


def prepare(directory: Path, me: Membership, epoch: int, store: Store) -> None:
    """Prepare a home without copies for copies from its next start on. All commits on disk then count as complete.

    Args:
        directory: directory of the home.
        epoch: epoch of the process that serves the home.

    Raises:
        OSError: a file cannot be written.
    """
    last = store.lineage[-1]
    mark = position_at(last.segment, last.end)
    noted = Noted(me.member, me.disk, epoch, mark, before(last.segment + 1))
    checked_file.replace(directory / NOTE, noted.encode(), Files())
    write_member(directory, me)


def write_member(directory: Path, me: Membership) -> None:
    """Write the membership, synced.

    Raises:
        OSError: the file cannot be written.
    """
    checked_file.replace(directory / FILE, checked_file.encoded(asdict(me)), Files())
