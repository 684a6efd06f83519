"""The demo's messages are all flights of the year, in order of scheduled departure."""

import json

import pytest

from jumpmq.cli.demo.flights import FlightMessages, read_flights


@pytest.fixture(scope="module")
def flights() -> FlightMessages:
    return read_flights()


@pytest.mark.slow
def test_every_flight_of_the_year_is_there(flights: FlightMessages) -> None:
    assert len(flights.bodies) == len(flights.keys) == 336_776


@pytest.mark.slow
def test_flights_without_a_tail_number_share_the_empty_key(flights: FlightMessages) -> None:
    assert flights.without_tail_number == 2_512
    assert json.loads(flights.bodies[flights.keys.index("")])["tailnum"] is None


@pytest.mark.slow
def test_there_are_4043_aircraft(flights: FlightMessages) -> None:
    assert len(set(flights.keys) - {""}) == 4_043


def test_a_message_is_the_whole_row_and_its_number() -> None:
    assert json.loads(read_flights(1).bodies[0]) == {
        "number": 1,
        "year": 2013,
        "month": 1,
        "day": 1,
        "dep_time": 517,
        "sched_dep_time": 515,
        "dep_delay": 2,
        "arr_time": 830,
        "sched_arr_time": 819,
        "arr_delay": 11,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "air_time": 227,
        "distance": 1400,
        "hour": 5,
        "minute": 15,
        "time_hour": "2013-01-01T10:00:00Z",
    }


def test_the_order_is_that_of_scheduled_departure() -> None:
    flights = [json.loads(body) for body in read_flights(5_000).bodies]
    scheduled = [(flight["month"], flight["day"], flight["sched_dep_time"]) for flight in flights]
    assert scheduled == sorted(scheduled)
    assert [flight["number"] for flight in flights] == list(range(1, 5_001))
