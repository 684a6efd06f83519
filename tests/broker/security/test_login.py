"""Users and addresses allowed to log in."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
import requests
from tests.wire import ConnectionClosed, login

import jumpmq
from jumpmq.amqp.errors import AccessRefused
from jumpmq.amqp.fields import Field, write_fields
from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.authenticator import Authenticator, is_loopback
from jumpmq.broker.security.login import read_credentials
from jumpmq.broker.security.passwords import hash_password, verify_password
from jumpmq.broker.timing import BROKER_TIMING
from jumpmq.topology import PutUser, Topology

T = TypeVar("T")
GRANTED = dict.fromkeys(("configure", "write", "read"), ".*")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["192.0.2.1", "::", "0.0.0.0", "fe80::1", "::ffff:192.0.2.1", "localhost", ""])
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_credentials() -> None:
    amqplain = write_fields([Field("LOGIN", "S", "jürgen"), Field("PASSWORD", "S", "pass\0word")])[4:]
    assert read_credentials("PLAIN", "\0jürgen\0password".encode()) == ("jürgen", "password")
    assert read_credentials("PLAIN", b"someone else\0guest\0") == ("guest", "")
    assert read_credentials("AMQPLAIN", amqplain) == ("jürgen", "pass\0word")


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b""),
        ("PLAIN", b"guest\0guest"),
        ("PLAIN", b"\0guest\0guest\0guest"),
        ("PLAIN", b"\0\xff\0guest"),
        ("AMQPLAIN", b""),
        ("AMQPLAIN", b"\x05LOGINS\0\0\0\x05guest"),
        ("AMQPLAIN", b"\x05LOGINS\xff\xff\xff\xff"),
        ("AMQPLAIN", b"\x05LOGINt\x01\x08PASSWORDt\x01"),
        ("EXTERNAL", b""),
        ("", b""),
    ],
)
def test_malformed_credentials_are_refused_like_wrong_ones(mechanism: str, response: bytes) -> None:
    with pytest.raises(AccessRefused, match=f"authentication mechanism {mechanism}"):
        read_credentials(mechanism, response)


def test_who_may_log_in_from_where() -> None:
    topology = Topology("jumpmq@test", None)
    for user in ("guest", "alice"):
        topology.apply(PutUser(user, hash_password(f"{user}'s"), ()))

    async def answers() -> dict[tuple[str, str, str], Principal | None]:
        authenticator = Authenticator(topology)
        asked = [
            (user, password, host)
            for user in ("guest", "alice", "nobody")
            for password in ("guest's", "alice's")
            for host in ("127.0.0.1", "192.0.2.1")
        ]
        found = dict(
            zip(asked, await asyncio.gather(*(authenticator.authenticate(*one) for one in asked)), strict=True)
        )
        again = await asyncio.gather(*(authenticator.authenticate(*one) for one in asked))
        assert again == list(found.values())
        topology.apply(PutUser("alice", hash_password("new"), ()))
        assert not await authenticator.authenticate("alice", "alice's", "127.0.0.1")
        authenticator.close()
        return found

    allowed = {one for one, answer in asyncio.run(answers()).items() if answer}
    assert allowed == {
        ("guest", "guest's", "127.0.0.1"), ("alice", "alice's", "127.0.0.1"), ("alice", "alice's", "192.0.2.1"),
    }  # fmt: skip


def test_passwords_are_kept_as_argon2id_hashes() -> None:
    hashed = hash_password("sesame")
    assert hashed.startswith("$argon2id$")
    assert hash_password("sesame") != hashed
    assert verify_password(hashed, "sesame")
    assert not verify_password(hashed, "open")
    assert not verify_password("no hash", "sesame")


def address_of_this_machine() -> str:
    """Return a non-loopback address of the machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as looking:
        try:
            looking.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        return str(looking.getsockname()[0])


@pytest.mark.skipif(is_loopback(address_of_this_machine()), reason="this machine has no other address")
def test_guest_logs_in_from_this_machine_only() -> None:
    host = address_of_this_machine()
    with jumpmq.running(host="0.0.0.0") as broker:
        local = f"http://127.0.0.1:{broker.http_port}/api"
        for kind, body in (("users", {"password": "alice", "tags": "management"}), ("permissions/%2F", GRANTED)):
            assert requests.put(f"{local}/{kind}/alice", json=body, auth=("guest", "guest")).status_code == 201
        login(broker.port).close()
        with pytest.raises(ConnectionClosed, match="403 ACCESS_REFUSED - Login was refused"):
            login(broker.port, host=host)
        login(broker.port, host=host, user="alice", password="alice").close()
        url = f"http://{host}:{broker.http_port}/api/whoami"
        assert [requests.get(url, auth=(user, user)).status_code for user in ("guest", "alice")] == [401, 200]


# --- failed logins are slowed down, and other users are not ---


def outcome(
    scenario: Callable[[Authenticator], Awaitable[T]], *users: str, refusal_time: float = BROKER_TIMING.refusal
) -> T:
    """Run a scenario with the given users; a user's password is the name."""
    topology = Topology("jumpmq@test", None)
    for user in users:
        topology.apply(PutUser(user, hash_password(user), ()))

    async def run() -> T:
        authenticator = Authenticator(topology, refusal_time=refusal_time)
        try:
            return await scenario(authenticator)
        finally:
            authenticator.close()

    return asyncio.run(run())


def test_a_right_password_does_not_wait_behind_invented_users() -> None:
    async def scenario(authenticator: Authenticator) -> int:
        invented = [asyncio.ensure_future(authenticator.authenticate(f"u{n}", "x", "192.0.2.1")) for n in range(700)]
        await asyncio.sleep(0)
        assert await authenticator.authenticate("alice", "alice", "192.0.2.1")
        waiting = sum(not one.done() for one in invented)
        for one in invented:
            one.cancel()
        return waiting

    assert outcome(scenario, "alice", refusal_time=60.0) == 700


def test_a_right_password_does_not_wait_behind_another_addresss_wrong_ones() -> None:
    async def scenario(authenticator: Authenticator) -> int:
        users = [f"u{n}" for n in range(15)]
        wrong = [asyncio.ensure_future(authenticator.authenticate(user, "x", "192.0.2.1")) for user in users]
        await asyncio.sleep(0)
        order: list[str] = []
        for one in wrong:
            one.add_done_callback(lambda _: order.append("wrong"))
        assert await authenticator.authenticate("alice", "alice", "192.0.2.2")
        before = len(order)
        assert not any(await asyncio.gather(*wrong))
        return before

    # Two had begun before she came, and one is in turn; in the order of arrival all would be answered before
    # her.
    assert outcome(scenario, "alice", *(f"u{n}" for n in range(15)), refusal_time=0.001) < 8


def test_a_right_password_passes_a_flood_of_wrong_ones_of_the_same_user() -> None:
    async def scenario(authenticator: Authenticator) -> Principal | None:
        flood = [asyncio.ensure_future(authenticator.authenticate("alice", "wrong", "192.0.2.1")) for _ in range(100)]
        assert not any(await asyncio.gather(*flood[:20]))
        flood += [asyncio.ensure_future(authenticator.authenticate("alice", "wrong", "192.0.2.1")) for _ in range(700)]
        await asyncio.sleep(0)
        passed = await authenticator.authenticate("alice", "alice", "192.0.2.1")
        assert not all(one.done() for one in flood)
        for one in flood:
            one.cancel()
        return passed

    assert outcome(scenario, "alice")


def test_whoever_hangs_up_while_waiting_frees_the_way() -> None:
    async def scenario(authenticator: Authenticator) -> bool:
        gone = [
            asyncio.ensure_future(authenticator.authenticate(user, "x", "192.0.2.1"))
            for user in ("alice", "bob", "carol", "dave") * 4
        ]
        await asyncio.sleep(0)
        for one in gone:
            one.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        answers = [await authenticator.authenticate(user, user, "192.0.2.1") for user in ("alice", "bob", "carol")]
        return all(answers)

    assert outcome(scenario, "alice", "bob", "carol", "dave")


def test_no_refusal_comes_early_whatever_was_wrong() -> None:
    topology = Topology("jumpmq@test", None)
    topology.apply(PutUser("alice", hash_password("alice"), ()))
    topology.apply(PutUser("none", "", ()))

    async def answered_at() -> list[float]:
        authenticator, loop = Authenticator(topology), asyncio.get_running_loop()
        times = []
        for user in ("alice", "none", "nobody"):
            began = loop.time()
            assert not await authenticator.authenticate(user, "wrong", "192.0.2.1")
            times.append(loop.time() - began)
        authenticator.close()
        return times

    assert min(asyncio.run(answered_at())) >= 0.99 * BROKER_TIMING.refusal
