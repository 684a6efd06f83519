"""Every GET of the management API answers with the keys and types that RabbitMQ's has, but for those that are named."""

from benchmarks.brokers import BrokerProcess
from tests.conformance.operator import Operator
from tests.conformance.shapes import answers, expected, one_of_everything


def test_keys_and_types(broker: BrokerProcess, operator: Operator) -> None:
    """RabbitMQ shows some keys only after a while; what it does show must be in the table."""
    both, theirs = expected()
    with one_of_everything(broker, operator):
        found = answers(operator)
    assert found.keys() == both.keys()
    for path, shape in found.items():
        shown = set(shape) - {"."}
        absent = {key for key in theirs[path] if key in shown}
        if broker.name == "JumpMQ":
            assert not both[path] - shown, f"{path} lacks"
            assert not absent, f"{path} has them now"
        else:
            inside = tuple(mark for key in theirs[path] for mark in (f"{key}.", f"{key}["))
            unknown = {key for key in shown - both[path] - theirs[path] if not key.startswith(inside)}
            assert not unknown, f"{path} is not in the table with"
