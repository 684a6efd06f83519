"""Available memory and disk, and the operator's limits for the broker."""

import os
import re
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")

MEMORY_SHARE = 0.4
"""Default memory limit, as a share of the machine's or the container's memory (RabbitMQ's
``vm_memory_high_watermark``).
"""

DISK_FREE_LIMIT = 50_000_000
"""Octets kept free by default (RabbitMQ's ``disk_free_limit``)."""

_UNITS = {
    "": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mib": 1 << 20, "g": 1 << 30, "gib": 1 << 30,
    "t": 1 << 40, "tib": 1 << 40, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip


def octets(text: str) -> int:
    """Parse a size such as ``50000000``, ``2GB`` or ``512MiB``. RabbitMQ's units: ``MB`` is 10^6, ``M`` and ``MiB``
    2^20.

    Raises:
        ValueError: the text is not a size.
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    unit = _UNITS.get(found[2].lower()) if found is not None else None
    if found is None or unit is None:
        raise ValueError(f"'{text}' is no size: octets, or a number with a unit such as MB or MiB")
    return int(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit


def memory_limit(text: str | None) -> int:
    """Return a memory limit in octets, given a size or a share of the available memory, such as ``0.4``.

    Args:
        text: None for the default share.

    Raises:
        ValueError: the text is neither a size nor a share.
    """
    if text is None:
        return int(MEMORY_SHARE * available_memory())
    if re.fullmatch(r"\s*[01]\.[0-9]*\s*", text):
        share = float(text)
        if share > 1:
            raise ValueError(f"'{text}' is more than all memory; as a share it is at most 1.0")
        return int(share * available_memory())
    return octets(text)


def disk_free_limit(text: str | None) -> int:
    """Return the octets of disk to keep free, given a size, or ``mem_relative`` and a factor of the available memory.

    Args:
        text: None for :data:`DISK_FREE_LIMIT`.

    Raises:
        ValueError: the text has neither form.
    """
    if text is None:
        return DISK_FREE_LIMIT
    if found := re.fullmatch(r"mem_relative ([0-9]+(\.[0-9]*)?)", text):
        return int(float(found[1]) * available_memory())
    return octets(text)


def available_memory(membership: Path = MEMBERSHIP, groups: Path = CGROUPS) -> int:
    """Return the octets of the machine's memory, or of the control groups' limit for this process, if lower.

    Args:
        membership: file that names the groups of this process.
        groups: mount of the control groups.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_group_limits(membership, groups)])


def _group_limits(membership: Path, groups: Path) -> list[int]:
    """Return the limits of control groups, version 1 or 2, for this process; the limits of parent groups apply, too."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            found += _limits_upward(groups, path, "memory.max")
        elif "memory" in controllers.split(","):
            found += _limits_upward(groups / "memory", path, "memory.limit_in_bytes")
    return found


def _limits_upward(mount: Path, path: str, name: str) -> list[int]:
    group = mount / path.lstrip("/")
    groups = [group, *group.parents] if group.is_relative_to(mount) else [mount]
    found = []
    for one in groups:
        try:
            text = (one / name).read_text().strip()
        except OSError:  # in a container the path is the host's, and only the mount itself exists
            text = ""
        if text.isdigit():
            found.append(int(text))
        if one == mount:
            break
    return found


def disk_free(directory: Path) -> int:
    """Return the octets still available to this user on the file system of ``directory``."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize
