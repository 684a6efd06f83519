"""Sizes, shares, and a container's memory limit."""

from pathlib import Path

import pytest

from jumpmq.broker.memory import resources


@pytest.mark.parametrize(
    ("text", "octets"),
    [("0", 0), ("50000000", 50_000_000), ("50MB", 50_000_000), ("2 GiB", 2 << 30), ("1k", 1024), ("1.5kB", 1500)],
)
def test_sizes(text: str, octets: int) -> None:
    assert resources.octets(text) == octets


@pytest.mark.parametrize("text", ["", "MB", "-1", "2xB", "1e9", "0x10"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        resources.octets(text)


def test_a_share_is_of_all_memory() -> None:
    assert resources.memory_limit("0.5") == int(resources.available_memory() * 0.5)
    assert resources.memory_limit(None) == int(resources.available_memory() * 0.4)
    assert resources.disk_free_limit("mem_relative 2") == 2 * resources.available_memory()
    with pytest.raises(ValueError, match="more than all memory"):
        resources.memory_limit("1.5")


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "1000000\n"}, 1_000_000),
        ("0::/a/b\n", {"a/b/memory.max": "500000\n", "a/memory.max": "1000000\n"}, 500_000),
        ("0::/host/path\n", {"memory.max": "700000\n"}, 700_000),
        ("5:memory:/docker/x\n", {"memory/docker/x/memory.limit_in_bytes": "800000\n"}, 800_000),
        ("5:cpu,memory:/docker/x\n0::/\n", {"memory/memory.limit_in_bytes": "900000\n"}, 900_000),
    ],
)
def test_the_memory_of_a_container(tmp_path: Path, membership: str, files: dict[str, str], expected: int) -> None:
    write(tmp_path / "membership", membership)
    for name, text in files.items():
        write(tmp_path / "mount" / name, text)
    assert resources.available_memory(tmp_path / "membership", tmp_path / "mount") == expected


def test_without_a_container_it_is_the_machines(tmp_path: Path) -> None:
    assert resources.available_memory(tmp_path / "none") > 1 << 28
