"""The PROXY protocol, versions 1 and 2: addresses of clients behind a load balancer.

A connection from a trusted address must begin with a header. Connections from all other addresses are served directly.
The header precedes TLS. Exactly the octets of the header are read from the socket, before the event loop gets the
connection.

Source: "The PROXY protocol, versions 1 & 2", HAProxy, 2020/03/05.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import NamedTuple

from jumpmq.broker.connection.origin import ConnectionOrigin

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
"""First octets of a version 2 header."""

FIXED = len(SIGNATURE) + 4
"""Octets of a version 2 header before the addresses: signature, version and command, family, length."""

LONGEST_LINE = 107
"""Maximum length of a version 1 header with its end, in octets."""

MAX_REST = 4096
"""Maximum octets of addresses and extensions after the fixed part of version 2."""

TIMEOUT = 5.0
"""Seconds for a trusted proxy to send the header."""

LOCAL, PROXY = 0x20, 0x21
"""Version and command: a connection of the proxy itself, for example a health check, and a relayed connection."""

FAMILIES = {0x11: (socket.AF_INET, 4), 0x21: (socket.AF_INET6, 16)}
"""TCP over IPv4 and IPv6, with the octets of an address; with other families, the socket's addresses count."""

WORDS = {b"TCP4": ipaddress.IPv4Address, b"TCP6": ipaddress.IPv6Address}
"""Address families in version 1."""


class NoHeader(Exception):
    """A trusted proxy has not sent a header."""


class Ends(NamedTuple):
    """Addresses and ports of a relayed connection.

    Attributes:
        peer: address and port of the client.
        server: address and port to which the client has connected.
    """

    peer: tuple[str, int]
    server: tuple[str, int]

    def of(self, origin: ConnectionOrigin) -> ConnectionOrigin:
        """Return a copy of an origin with these addresses."""
        return origin._replace(peer=self.peer, server=self.server)


class Proxies:
    """Trusted proxies.

    Args:
        networks: addresses and networks, separated by commas, such as ``10.0.0.0/8,::1``.

    Raises:
        ValueError: an address or network is malformed.
    """

    def __init__(self, networks: str) -> None:
        self._networks = [ipaddress.ip_network(one.strip(), strict=False) for one in networks.split(",")]

    def trusts(self, address: str) -> bool:
        """Return True if headers from an address are trusted."""
        found = ipaddress.ip_address(address.partition("%")[0])
        # A socket for IPv6 shows the addresses of IPv4 in mapped form.
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)

    async def ends(self, client: socket.socket) -> Ends | None:
        """Return the addresses in a new connection's header; None if the socket's own apply.

        Args:
            client: a non-blocking socket, not yet read.

        Raises:
            NoHeader: the proxy is trusted and has sent no header in time.
            OSError: the connection is gone.
        """
        proxy = str(client.getpeername()[0])
        if not self.trusts(proxy):
            return None
        header = Header()
        try:
            async with asyncio.timeout(TIMEOUT):
                while not header.is_complete:
                    await _readable(client)
                    # Octets behind the header stay in the socket: with TLS, the handshake begins there.
                    octets = client.recv(FIXED + MAX_REST, socket.MSG_PEEK)
                    if not octets:
                        raise NoHeader("it ended before its header")
                    client.recv(header.take(octets))
        except TimeoutError:
            raise NoHeader(f"{proxy} sent no header in {TIMEOUT:g} seconds") from None
        except NoHeader as error:
            raise NoHeader(f"{proxy} sent no header: {error}") from None
        return header.ends


def trusted(networks: str | None) -> Proxies | None:
    """Return the proxies in a setting; None if unset."""
    return None if networks is None else Proxies(networks)


class Header:
    """A header arriving in pieces.

    Attributes:
        is_complete: True once the whole header has arrived.
        ends: addresses in the header; None for a header without addresses.
    """

    def __init__(self) -> None:
        self._octets = b""
        self.is_complete = False
        self.ends: Ends | None = None

    def take(self, octets: bytes) -> int:
        """Consume octets of the header.

        Returns:
            the number of consumed octets, at least one.

        Raises:
            NoHeader: the octets are not a header.
        """
        known = len(self._octets)
        whole = self._octets + octets
        if whole[: len(SIGNATURE)] == SIGNATURE[: len(whole)]:
            end = self._end_of_binary(whole)
        elif whole[:6] == b"PROXY "[: len(whole)]:
            end = self._end_of_line(whole)
        else:
            raise NoHeader("it begins otherwise")
        self._octets = whole[:end]
        return len(self._octets) - known

    def _end_of_line(self, octets: bytes) -> int:
        end = octets.find(b"\r\n", 0, LONGEST_LINE)
        if end < 0:
            if len(octets) >= LONGEST_LINE:
                raise NoHeader("its line does not end")
            return len(octets)
        self.is_complete = True
        self.ends = _of_line(octets[:end].split(b" "))
        return end + 2

    def _end_of_binary(self, octets: bytes) -> int:
        if len(octets) < FIXED:
            return len(octets)
        command, family = octets[len(SIGNATURE)], octets[len(SIGNATURE) + 1]
        length = int.from_bytes(octets[FIXED - 2 : FIXED])
        if command not in (LOCAL, PROXY) or length > MAX_REST:
            raise NoHeader("its version, command or length is unknown")
        if len(octets) < FIXED + length:
            return len(octets)
        self.is_complete = True
        if command == PROXY and family in FAMILIES:
            self.ends = _of_addresses(octets[FIXED : FIXED + length], *FAMILIES[family])
        return FIXED + length


def _of_line(words: list[bytes]) -> Ends | None:
    if words[1:2] == [b"UNKNOWN"]:
        return None
    try:
        _, kind, peer, server, *ports = words
        if b"%" in peer + server:  # Python accepts any text as the zone of an address
            raise NoHeader("its line has no addresses")
        addresses = [str(WORDS[kind](one.decode("ascii"))) for one in (peer, server)]
        numbers = [int(port.decode("ascii")) for port in ports if port.isdigit()]
    except (ValueError, KeyError):
        raise NoHeader("its line has no addresses") from None
    if len(ports) != 2 or len(numbers) != 2 or max(numbers) > 0xFFFF:
        raise NoHeader("its line has no ports")
    return _paired(addresses, numbers)


def _of_addresses(octets: bytes, family: socket.AddressFamily, size: int) -> Ends:
    if len(octets) < 2 * size + 4:
        raise NoHeader("its addresses are cut")
    addresses = [socket.inet_ntop(family, octets[at : at + size]) for at in (0, size)]
    return _paired(addresses, [int.from_bytes(octets[at : at + 2]) for at in (2 * size, 2 * size + 2)])


def _paired(addresses: Iterable[str], ports: Iterable[int]) -> Ends:
    peer, server = zip(addresses, ports, strict=True)
    return Ends(peer, server)


async def _readable(client: socket.socket) -> None:
    """Wait until the socket is readable."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(client, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(client)
