"""A member receives its copy as files, despite damaged pieces, lost connections and replaced manifests."""

from zlib import crc32

from jumpmq.replication.actions import Alarm, Send
from jumpmq.replication.copies import Copy
from jumpmq.replication.frames import File, Manifest, Piece, Want, decode, encode
from jumpmq.replication.joining import MOST_DAMAGED, Clear, Install, Joining, Pages, Put, pages_of
from jumpmq.replication.lineage import Stretch, before, position_at

FILES = {"1": b"abcdef", "2": b"gh"}
LINEAGE = (Stretch(1, 1, 10, 6), Stretch(2, 2, 20, 2))
MANIFEST = Manifest(5, 0, LINEAGE, tuple(File(name, len(octets), crc32(octets)) for name, octets in FILES.items()))


def piece(name: str, offset: int, octets: bytes) -> Piece:
    return Piece(5, name, offset, crc32(octets), octets)


def wants(name: str, offset: int) -> Send:
    return Send("a.1", Want(5, name, offset))


def joining(have: dict[str, tuple[int, int]] | None = None) -> Joining:
    one = Joining(Copy("b.1", 5, 0, ()), "a.1", 5, have)
    assert one.start() == [wants("", 0)]
    return one


def test_a_copy_is_installed_when_each_file_is_whole() -> None:
    one = joining()
    assert one.on_manifest(MANIFEST) == [wants("1", 0)]
    assert one.on_piece(piece("1", 0, b"abcd")) == [Put("1", 0, b"abcd"), wants("1", 4)]
    assert one.on_piece(piece("1", 4, b"ef")) == [Put("1", 4, b"ef"), wants("2", 0)]
    assert one.on_piece(piece("2", 0, b"gh")) == [Put("2", 0, b"gh"), Install(0, LINEAGE)]
    one.on_installed()
    copy = one.copy
    assert copy.lineage == LINEAGE
    assert copy.stored == copy.complete == copy.mark == position_at(2, 2)
    assert one.on_manifest(MANIFEST) == one.on_piece(piece("2", 0, b"gh")) == []


def test_a_damaged_piece_is_asked_for_again_and_one_that_is_late_is_ignored() -> None:
    one = joining()
    one.on_manifest(MANIFEST)
    assert one.on_piece(Piece(5, "1", 0, 7, b"abcd")) == [wants("1", 0)]
    assert one.on_piece(piece("1", 0, b"abcd")) == [Put("1", 0, b"abcd"), wants("1", 4)]
    for late in (piece("1", 0, b"abcd"), piece("2", 0, b"gh"), piece("1", 4, b"ef")._replace(epoch=4)):
        assert one.on_piece(late) == []
    assert one.on_piece(piece("1", 4, b"efg")) == [wants("1", 4)]


def test_a_file_whose_octets_are_not_what_was_said_begins_again_and_is_given_up() -> None:
    one = joining()
    one.on_manifest(MANIFEST)
    for _ in range(MOST_DAMAGED):
        assert one.on_piece(piece("1", 0, b"ABCDEF")) == [Put("1", 0, b"ABCDEF"), Clear(("1",)), wants("1", 0)]
    *_, last = one.on_piece(piece("1", 0, b"ABCDEF"))
    assert isinstance(last, Alarm) and "damaged" in one.failed
    assert one.on_manifest(MANIFEST) == []


def test_it_goes_on_with_what_an_earlier_process_left() -> None:
    one = joining({"1": (4, crc32(b"abcd")), "2": (2, crc32(b"gh")), "7": (1, 0)})
    assert one.on_manifest(MANIFEST) == [Clear(("7",)), wants("1", 4)]
    assert one.on_piece(piece("1", 4, b"ef")) == [Put("1", 4, b"ef"), Install(0, LINEAGE)]


def test_what_was_left_of_another_file_is_not_taken_for_a_whole_one() -> None:
    one = joining({"1": (6, crc32(b"ABCDEF")), "2": (3, 0)})
    assert one.on_manifest(MANIFEST) == [Clear(("1", "2")), wants("1", 0)]


def test_a_file_that_is_gone_needs_another_manifest() -> None:
    one = joining()
    one.on_manifest(MANIFEST)
    one.on_piece(piece("1", 0, b"abcd"))
    assert one.on_piece(piece("1", 4, b"")) == [wants("", 0)]
    shorter = MANIFEST._replace(kept=before(2), lineage=LINEAGE[1:], files=MANIFEST.files[1:])
    assert one.on_manifest(shorter) == [Clear(("1",)), wants("2", 0)]
    assert one.on_piece(piece("2", 0, b"gh"))[-1] == Install(before(2), LINEAGE[1:])


def test_where_all_sealed_segments_were_removed_the_copy_begins_empty_behind_them() -> None:
    one = joining()
    assert one.on_manifest(Manifest(5, before(9), (), ())) == [Install(before(9), ())]
    one.on_installed()
    assert position_at(8, 0) < one.copy.end == one.copy.stored < position_at(9, 0)


def test_a_manifest_that_would_lose_what_is_complete_is_refused() -> None:
    one = joining()
    one.copy.complete = position_at(3, 0)
    (alarm,) = one.on_manifest(MANIFEST)
    assert isinstance(alarm, Alarm) and "end before what b.1 knows to be complete" in one.failed


def test_a_manifest_that_names_a_file_twice_is_refused() -> None:
    one = joining()
    (alarm,) = one.on_manifest(MANIFEST._replace(files=MANIFEST.files * 2))
    assert isinstance(alarm, Alarm) and "twice" in one.failed


def test_a_manifest_of_any_size_comes_in_pages_and_never_in_part() -> None:
    lineage = tuple(Stretch(number, 1, number, 300) for number in range(1, 10_001))
    files = tuple(File(f"streams/{number}/{number:020}.segment", 300, number) for number in range(40_000))
    manifest = Manifest(5, 0, lineage, files)
    pages = [decode(encode(3, page))[1] for page in pages_of(manifest)]
    assert len(pages) == 5

    def added(*numbers: int) -> list[Manifest | None]:
        have = Pages()
        return [have.add(pages[number]) for number in numbers]  # type: ignore[arg-type]

    assert added(0, 1, 2, 3, 4) == [None] * 4 + [manifest]
    assert added(0, 1, 0, 1, 2, 3, 4)[-1] == manifest
    for numbers in ((1, 2, 3, 4), (0, 1, 3, 4), (0, 1, 1, 2, 3, 4), (0, 2, 1, 2, 3, 4)):
        assert not any(added(*numbers))
    assert pages_of(MANIFEST) == [MANIFEST]
