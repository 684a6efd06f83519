"""Users and permissions."""

import pytest
from tests.topology.built import Built

from jumpmq.amqp.errors import NotAllowed, NotFound, PreconditionFailed
from jumpmq.topology import (
    AddVirtualHost,
    ClearPermissions,
    DeleteUser,
    DeleteVirtualHost,
    Permissions,
    PutUser,
    SetPermissions,
)


@pytest.mark.parametrize(
    ("pattern", "name", "allowed"),
    [
        (".*", "anything", True),
        (".*", "", True),
        ("", "anything", False),
        ("^shop-", "shop-orders", True),
        ("^shop-", "my-shop-orders", False),
        ("orders", "my-orders-too", True),
        ("^amq\\.default$", "", True),
        ("^$", "", False),
    ],
)
def test_a_pattern_is_searched_in_the_name(pattern: str, name: str, allowed: bool) -> None:
    assert Permissions(pattern, "^$", "^$").allows("configure", name) is allowed


def test_each_operation_has_its_pattern() -> None:
    granted = Permissions("^c", "^w", "^r")
    for operation in ("configure", "write", "read"):
        assert [name for name in ("c", "w", "r") if granted.allows(operation, name)] == [operation[0]]


def test_permissions_are_given_and_taken(built: Built) -> None:
    built.topology.apply(PutUser("ann", "hash", ("monitoring",)))
    built.topology.apply(SetPermissions("ann", "/", ".*", "^out", ""))
    ann = built.topology.user("ann")
    assert ann.tags == ("monitoring",)
    assert ann.permissions == {"/": Permissions(".*", "^out", "")}
    built.topology.apply(PutUser("ann", "other hash"))
    assert [ann.password_hash, *ann.tags, *ann.permissions] == ["other hash", "/"]
    built.topology.apply(ClearPermissions("ann", "/"))
    assert ann.permissions == {}


def test_a_pattern_that_is_none_is_refused(built: Built) -> None:
    built.topology.apply(PutUser("ann", "hash"))
    with pytest.raises(PreconditionFailed, match=r"^invalid regular expression '\(' for write: "):
        built.topology.apply(SetPermissions("ann", "/", ".*", "(", ".*"))
    assert built.topology.user("ann").permissions == {}


def test_who_and_where_must_exist(built: Built) -> None:
    built.topology.apply(PutUser("ann", "hash"))
    with pytest.raises(NotFound, match=r"^no user 'bob'$"):
        built.topology.apply(SetPermissions("bob", "/", "", "", ""))
    with pytest.raises(NotAllowed, match=r"^vhost lost not found$"):
        built.topology.apply(SetPermissions("ann", "lost", "", "", ""))
    with pytest.raises(NotFound, match=r"^no user 'bob'$"):
        built.topology.apply(DeleteUser("bob"))


def test_permissions_end_with_their_virtual_host(built: Built) -> None:
    built.topology.apply(AddVirtualHost("other"))
    built.topology.apply(PutUser("ann", "hash"))
    for vhost in ("/", "other"):
        built.topology.apply(SetPermissions("ann", vhost, "", "", ""))
    built.topology.apply(DeleteVirtualHost("other"))
    assert list(built.topology.user("ann").permissions) == ["/"]
    assert list(built.topology.vhosts) == ["/"]
