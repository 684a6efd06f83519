"""Who may log in, and from where."""

import asyncio

import pytest

from jumpmq.amqp.errors import AccessRefused
from jumpmq.amqp.fields import Field, write_fields
from jumpmq.broker.login import Authenticator, is_loopback, read_credentials
from jumpmq.broker.passwords import hash_password, verify_password
from jumpmq.topology import Topology, changes


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
        topology.apply(changes.PutUser(user, hash_password(f"{user}'s"), ()))

    async def answers() -> dict[tuple[str, str, str], bool]:
        authenticator = Authenticator(topology)
        asked = [
            (user, password, host)
            for user in ("guest", "alice", "nobody")
            for password in ("guest's", "alice's")
            for host in ("127.0.0.1", "192.0.2.1")
        ]
        found = {one: await authenticator.authenticate(*one) for one in asked * 2}
        topology.apply(changes.PutUser("alice", hash_password("new"), ()))
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
