"""Fuzzes the compiled kernel of the wire format, guided by its coverage, under AddressSanitizer.

    python -m fuzzing.frames --seconds 60

The kernels are built by clang into a temporary directory, and run by atheris (libFuzzer) in a separate process. The
initial inputs are conversations of clients (:mod:`fuzzing.sockets`), changed as coverage suggests. An input is parsed;
published messages are encoded as deliveries, whose frames must be complete; the reference implementation must agree.
The exit status is 1 after a failure, and the input is printed in base64.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KERNEL = Path("jumpmq/amqp/_kernel.pyx")
FRAME_MAX = (4096, 131072)
"""Frame sizes, chosen by the first octet of an input."""
SEEDS = 200
REFERENCE_EVERY = 8
"""Interval of inputs also given to the reference implementation, which takes ten times as long."""

SANITIZERS = "-g -O1 -fno-omit-frame-pointer -fsanitize=address,fuzzer-no-link"


def missing() -> str:
    """The missing requirement to install, or ""."""
    if find_spec("atheris") is None:
        return "atheris is not installed: pip install atheris"
    if shutil.which("clang") is None:
        return "clang is not installed: apt-get install clang libclang-rt-dev"
    runtime = subprocess.run(
        ["clang", "-print-resource-dir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not any(Path(runtime).glob("lib/*/libclang_rt.asan*")):
        return "clang's AddressSanitizer is not installed: apt-get install libclang-rt-dev"
    return ""


def fuzz(seconds: int) -> subprocess.CompletedProcess[str]:
    """Build the kernel, and fuzz for the given seconds."""
    with tempfile.TemporaryDirectory() as directory:
        library, corpus = Path(directory, "library"), Path(directory, "corpus")
        build(library)
        plant(corpus)
        arguments = [
            f"-max_total_time={seconds}",
            "-max_len=8192",
            "-rss_limit_mb=2048",
            f"-artifact_prefix={directory}/",
        ]
        return subprocess.run(
            [sys.executable, "-m", "fuzzing.frames", "--inside", *arguments, str(corpus)],
            cwd=ROOT,
            env=sanitized(library),
            capture_output=True,
            text=True,
            check=False,
        )


def build(library: Path) -> None:
    """Return a copy of the package in which only the kernel of the wire format is built, for fuzzing."""
    shutil.copytree(ROOT / "src", library, ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    subprocess.run(
        [sys.executable, "-m", "Cython.Build.Cythonize", "--inplace", "-3", str(KERNEL)],
        cwd=library,
        env={**os.environ, "CC": "clang", "LDSHARED": "clang -shared", "CFLAGS": SANITIZERS},
        check=True,
        capture_output=True,
    )


def sanitized(library: Path) -> dict[str, str]:
    """The environment of the fuzzing process. Python's own allocator would hide reads beyond an object."""
    spec = find_spec("atheris")
    assert spec is not None
    assert spec.origin is not None
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(library), str(ROOT)]),
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": str(Path(spec.origin).parent.parent / "asan_with_fuzzer.so"),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    }


def plant(corpus: Path) -> None:
    """Write initial inputs: conversations of clients, intact and damaged."""
    from fuzzing.sockets import conversation

    corpus.mkdir()
    for number in range(SEEDS):
        _, octets = conversation(random.Random(number))
        (corpus / str(number)).write_bytes(bytes((number % 2,)) + octets[:8000])


# --- inside the fuzzing process ---


def look(data: bytes, with_reference: bool) -> None:
    """Parse an input, and compare.

    Raises:
        AssertionError: a wrong result.
    """
    from jumpmq.amqp import _kernel, _reference

    frame_max, octets = FRAME_MAX[data[0] % len(FRAME_MAX)], data[1:]
    events, used = _kernel.scan(octets, frame_max, 1.0)
    assert 0 <= used <= len(octets), f"{used} of {len(octets)} octets were used"
    for messages in [event.messages for event in events if hasattr(event, "messages")]:
        deliveries = b"".join(_kernel.encode_deliveries(messages, 1, b"tag", 1, frame_max))
        assert _kernel.scan(deliveries, frame_max, 1.0)[1] == len(deliveries), "deliveries are no whole frames"
    if with_reference:
        expected, expected_used = _reference.scan(octets, frame_max, 1.0)
        assert used == expected_used, f"the kernel used {used} octets, its reference {expected_used}"
        assert plain(events) == plain(expected), "the kernel and its reference disagree"


def plain(events: list[Any]) -> list[Any]:
    """Events as comparable values."""
    found: list[tuple[Any, ...]] = []
    for event in events:
        if hasattr(event, "messages"):
            fields = [
                (one.exchange, one.routing_key, one.properties, one.body, one.persistent) for one in event.messages
            ]
            found.append((event.channel, event.exchange, event.mandatory, event.immediate, event.flags, fields))
        elif hasattr(event, "payload"):
            found.append((event.type, event.channel, bytes(event.payload)))
        else:
            found.append((type(event), str(event)))
    return found


def inside(arguments: list[str]) -> None:
    """Fuzz until the deadline; does not return."""
    import atheris

    count = 0

    def one(data: bytes) -> None:
        nonlocal count
        count += 1
        if data:
            look(data, with_reference=count % REFERENCE_EVERY == 0)

    atheris.Setup([sys.argv[0], *arguments], one)
    atheris.Fuzz()


def main() -> int:
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2:])
    parser = argparse.ArgumentParser(description="Fuzz the kernel of the wire format.")
    parser.add_argument("--seconds", type=int, default=60)
    arguments = parser.parse_args()
    if what := missing():
        print(what, file=sys.stderr)
        return 2
    finished = fuzz(arguments.seconds)
    print(report(finished))
    return 1 if finished.returncode else 0


def report(finished: subprocess.CompletedProcess[str]) -> str:
    """The last line of a successful run; else the failure with its input."""
    lines = finished.stderr.splitlines()
    if not finished.returncode:
        return lines[-1]
    first = next((at for at, line in enumerate(lines) if "ERROR" in line or "Uncaught" in line), 0)
    return "\n".join(lines[first : first + 40] + [line for line in lines if line.startswith("Base64:")])


if __name__ == "__main__":
    sys.exit(main())
