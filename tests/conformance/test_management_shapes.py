"""Every GET of the management API answers with the keys and types that RabbitMQ's has, but for those that are named."""

from benchmarks.brokers import BrokerProcess
from tests.conformance.operator import Operator
from tests.conformance.shapes import answers, expected, one_of_everything


def test_keys_and_types(broker: BrokerProcess, operator: Operator) -> None:
    """RabbitMQ shows some keys only after a while; what it does show must be in the table."""
    both, theirs = expected()
    with one_of_everything(broker, operator):
        found = answers(operator, broker.port)
    assert found.keys() == both.keys()
    for path, shape in found.items():
        shown = set(shape) - {"."}
        others = {key: types for key, types in shape.items() if not types <= both[path].get(key, types)}
        assert not others, f"{path} has other types than the table"
        if broker.name == "JumpMQ":
            assert not set(both[path]) - shown, f"{path} lacks"
            assert not {key for key in theirs[path] if key in shown}, f"{path} has them now"
        else:
            inside = tuple(mark for key in theirs[path] for mark in (f"{key}.", f"{key}["))
            unknown = {key for key in shown - set(both[path]) - theirs[path] if not key.startswith(inside)}
            assert not unknown, f"{path} is not in the table with"
