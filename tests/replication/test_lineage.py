"""Lineages: the common prefix of two logs."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generating import examples

from jumpmq.replication.lineage import (
    Lineage,
    Stretch,
    common_end,
    cut_to,
    end_of,
    extends,
    from_segment,
    grown_to,
    position_at,
    segment_at,
)

ONE, TWO = Stretch(1, 1, 10, 100), Stretch(2, 2, 20, 50)


def test_a_position_has_the_segment_in_its_upper_half() -> None:
    assert position_at(3, 7) == 3 << 32 | 7
    assert segment_at(position_at(3, 7)) == 3
    assert (end_of((ONE, TWO)), end_of(())) == (position_at(2, 50), 0)


def test_a_shorter_log_of_the_same_history_is_common_up_to_its_end() -> None:
    shorter = (ONE._replace(end=30),)
    assert common_end(shorter, (ONE, TWO)) == common_end((ONE, TWO), shorter) == position_at(1, 30)
    assert extends((ONE, TWO), shorter)
    assert not extends(shorter, (ONE, TWO))


def test_segments_of_one_number_and_other_epochs_or_salts_have_nothing_in_common() -> None:
    for other in (TWO._replace(epoch=3), TWO._replace(salt=21)):
        assert common_end((ONE, TWO), (ONE, other)) == position_at(1, 100)


def test_a_longer_tail_that_the_next_epoch_did_not_take_is_not_common() -> None:
    longer = (ONE._replace(end=120),)
    assert common_end(longer, (ONE, TWO)) == position_at(1, 100)
    assert not extends((ONE, TWO), longer)


def test_logs_that_share_no_segment_have_nothing_in_common() -> None:
    assert common_end((ONE,), (TWO,)) == common_end((), (ONE,)) == common_end((ONE,), ()) == 0
    assert extends((ONE,), ())


def test_segments_that_were_removed_at_one_side_do_not_matter() -> None:
    three = Stretch(3, 2, 30, 5)
    assert common_end((ONE, three), (TWO, three)) == position_at(3, 5)


def test_a_log_is_cut_at_a_position_of_it() -> None:
    assert cut_to((ONE, TWO), position_at(2, 20)) == (ONE, TWO._replace(end=20))
    assert cut_to((ONE, TWO), position_at(1, 100)) == (ONE,)
    assert cut_to((ONE, TWO), 0) == ()


def test_a_log_grows_in_its_last_segment_and_begins_where_segments_were_removed() -> None:
    assert grown_to((ONE, TWO), position_at(2, 60)) == (ONE, TWO._replace(end=60))
    assert from_segment((ONE, TWO), 2) == (TWO,)


Logs = tuple[dict[int, Lineage], dict[int, list[bytes]]]
"""Lineages of replicas, and the octets of their segments."""


@st.composite
def histories(draw: st.DrawFn) -> Logs:
    """Logs of three replicas, after a series of leaders that wrote segments and had followers for a time.

    The octets beside each lineage allow a comparison of common prefixes by content.
    """
    lineages: dict[int, Lineage] = {0: (), 1: (), 2: ()}
    octets: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for epoch in range(1, draw(st.integers(1, 5))):
        leader = draw(st.sampled_from([0, 1, 2]))
        segment = lineages[leader][-1].segment + 1 if lineages[leader] else 1
        content = draw(st.binary(max_size=4))
        lineages[leader] = (*lineages[leader], Stretch(segment, epoch, epoch, len(content)))
        octets[leader] = [*octets[leader], content]
        for other in {0, 1, 2} - {leader}:
            if draw(st.booleans()):
                count = draw(st.integers(0, len(lineages[leader])))
                lineages[other], octets[other] = lineages[leader][:count], octets[leader][:count]
                if count and draw(st.booleans()):
                    cut = draw(st.integers(0, lineages[other][-1].end))
                    lineages[other] = cut_to(lineages[other], position_at(lineages[other][-1].segment, cut))
                    octets[other] = [*octets[other][:-1], octets[other][-1][:cut]]
    return lineages, octets


@given(histories())
@settings(max_examples=examples(300))
def test_what_lineages_have_in_common_is_the_same_octets(
    made: Logs,
) -> None:
    lineages, octets = made
    for one in lineages:
        for other in lineages:
            common = common_end(lineages[one], lineages[other])
            assert common == common_end(lineages[other], lineages[one])
            cut = cut_to(lineages[one], common)
            assert [s.identity for s in cut] == [s.identity for s in cut_to(lineages[other], common)]
            for at, stretch in enumerate(cut):
                assert octets[one][at][: stretch.end] == octets[other][at][: stretch.end]
