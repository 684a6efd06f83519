"""What the demo makes of what its consumers wrote."""

from jumpmq.cli.demo.crew import Part, SharedFlights, judged


def line(consumer: str, number: int, aircraft: str, *, redelivered: bool = False, queue: str = "q") -> str:
    return f"{consumer}\t{queue}\t{number}\t{int(redelivered)}\t{aircraft}"


def test_flights_in_order_by_aircraft_and_once() -> None:
    lines = [
        line("consumer 1", 2, "N2"), line("consumer 2", 1, "N1", queue="p"), line("consumer 1", 3, "N1"),
        line("consumer 1", 3, "N1", redelivered=True), line("consumer 1", 4, "", redelivered=True),
    ]  # fmt: skip
    parts = {"consumer 1": Part(4, 1), "consumer 2": Part(1, 1)}
    assert judged(lines, 4) == SharedFlights(4, parts, handled=4, again=1, out_of_order=0)


def test_what_breaks_the_promises_is_counted() -> None:
    lines = [line("a", 2, "N1"), line("b", 1, "N1"), line("b", 2, "N1")]
    found = judged(lines, 3)
    assert (found.handled, found.out_of_order) == (2, 2)
