"""Arrow arrays as the kernel reads and writes them: buffers without copies. Importing this module does not import
pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from typing_extensions import Buffer


class KeyBuffers(NamedTuple):
    """The buffers of an Arrow binary or string array, and the slice to use.

    Attributes:
        wide: True for offsets of int64 (large_binary, large_string), False for int32.
        validity: one bit a key, the lowest first, 0 for a null; None without nulls.
        offsets: start of each key, then the end of the last key.
        octets: the keys, one after the other; None if all keys are empty.
        first: index of the first key.
        length: number of keys.
    """

    wide: bool
    validity: Buffer | None
    offsets: Buffer | None
    octets: Buffer | None
    first: int
    length: int


def key_buffers(array: pa.Array) -> KeyBuffers:
    """Return the buffers of an array of type binary, string, large_binary or large_string.

    Raises:
        TypeError: the array is of another type.
    """
    import pyarrow as pa

    kinds = {pa.binary(): False, pa.string(): False, pa.large_binary(): True, pa.large_string(): True}
    if array.type not in kinds:
        raise TypeError(f"keys are binary or string, not {array.type}: cast them first")
    validity, offsets, octets = array.buffers()
    return KeyBuffers(kinds[array.type], validity, offsets, octets, array.offset, len(array))


def int32_array(count: int, write: Callable[[pa.Buffer], None]) -> pa.Array:
    """Return an int32 array of ``count`` values, written by ``write`` into a new buffer."""
    import pyarrow as pa

    out = pa.allocate_buffer(4 * count)
    write(out)
    return pa.Array.from_buffers(pa.int32(), count, [None, out])
