"""A short run of the fuzzer over the compiled kernel, under AddressSanitizer."""

import pytest
from fuzzing import frames
from tests.generating import examples


@pytest.mark.slow
@pytest.mark.skipif(bool(frames.missing()), reason=frames.missing())
def test_no_octets_make_the_kernel_read_or_write_where_it_must_not() -> None:
    finished = frames.fuzz(seconds=examples(20))
    assert finished.returncode == 0, frames.report(finished)
