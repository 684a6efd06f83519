"""A virtual host's default queue type, set as on RabbitMQ."""

from collections.abc import Callable

import pytest
import requests
from tests.wire import ChannelClosed, login

from jumpmq.testing import HOST, BrokerProcess

Name = Callable[[str], str]
NAMES = ("durable", "transient")


def test_durable_queues_have_it(broker: BrokerProcess, unique: Name) -> None:
    api, vhost = f"http://{HOST}:{broker.http_port}/api", unique("host")
    with requests.Session() as session:
        session.auth = ("guest", "guest")
        made = session.put(f"{api}/vhosts/{vhost}", json={"defaultqueuetype": "quorum"}, timeout=10)
        assert made.status_code == 201
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        session.put(f"{api}/permissions/{vhost}/guest", json=everything, timeout=10)
        assert session.get(f"{api}/vhosts/{vhost}", timeout=10).json()["default_queue_type"] == "quorum"
        with login(broker.port, vhost=vhost) as connection:
            channel = connection.channel()
            channel.queue("durable", durable=True, exclusive=False)
            channel.queue("durable", durable=True, exclusive=False, arguments={"x-queue-type": "quorum"})
            channel.queue("transient", exclusive=False)
            channel.queue("classic", durable=True, exclusive=False, arguments={"x-queue-type": "classic"})
            with pytest.raises(ChannelClosed) as refused:
                connection.channel().queue("p", durable=True, exclusive=False, arguments={"x-max-priority": 3})
            assert "of queue type rabbit_quorum_queue" in refused.value.text
            channel.queue("transient", exclusive=False)
            connection.close()
        shown = {
            name: session.get(f"{api}/queues/{vhost}/{name}", timeout=10).json() for name in ("durable", "transient")
        }
        assert {name: (one["type"], one["arguments"]) for name, one in shown.items()} == {
            "durable": ("quorum", {"x-queue-type": "quorum"}),
            "transient": ("classic", {}),
        }
        assert (
            session.put(f"{api}/vhosts/{unique('bad')}", json={"defaultqueuetype": "lost"}, timeout=10).status_code
            >= 400
        )
        session.delete(f"{api}/vhosts/{vhost}", timeout=10)
