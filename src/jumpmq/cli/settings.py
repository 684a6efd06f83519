"""The settings of a broker: names, and sources of values.

Precedence: command line, environment, configuration file (TOML), default. A setting `tls_cert` is the option
`--tls-cert`, the variable `JUMPMQ_TLS_CERT` and the key `tls-cert`.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OFF = "off"
LAST_PORT = 65535

CONFIG_VARIABLE = "JUMPMQ_CONFIG"
"""Environment variable with the path of the configuration file."""


class SettingError(Exception):
    """A value is wrong, or a key unknown; the text is one line."""


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: the field of `jumpmq.Config`.
        metavar: placeholder of the value in the help.
        words: description of valid values.
        purpose: help text.
        read: converts a text, or a value of TOML, to the field's value; raises ValueError for an invalid value.
        default: default value in the help; None without a default.
        secret: True for a value that must not be shown.
    """

    name: str
    metavar: str
    words: str
    purpose: str
    read: Callable[[Any], Any]
    default: str | None = None
    secret: bool = False

    @property
    def key(self) -> str:
        return self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return f"JUMPMQ_{self.name.upper()}"

    @staticmethod
    def written(value: Any) -> str:
        """Format a value for a configuration file."""
        if isinstance(value, bool):
            return str(value).lower()
        return str(value) if isinstance(value, int) else json.dumps(str(OFF if value is None else value))


@dataclass(frozen=True)
class SettingValue:
    """A value in force, and its origin."""

    value: Any
    source: str


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _path(value: Any) -> Path:
    return Path(_text(value)).expanduser()


def _number(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str) or not least <= int(value) <= most:
            raise ValueError
        return int(value)

    return read


def _port(value: Any) -> int | None:
    return None if value == OFF else _number(0, LAST_PORT)(value)


def _workers(value: Any) -> int:
    return len(os.sched_getaffinity(0)) if value == "auto" else _number(1, 64)(value)


def _one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return read


def _networks(value: Any) -> str:
    for one in _text(value).split(","):
        ipaddress.ip_network(one.strip(), strict=False)
    return str(value)


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return _one_of("true", "false")(value) == "true"


def _size(value: Any) -> str:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else _text(value)


def _choice(name: str, purpose: str, default: str, *others: str) -> Setting:
    return Setting(
        name,
        "|".join((default, *others)),
        f"one of {', '.join((default, *others))}",
        purpose,
        _one_of(default, *others),
        default,
    )


def _port_of(name: str, purpose: str, default: int) -> Setting:
    return Setting(
        name, "PORT", f"a number up to {LAST_PORT}, or {OFF}", f"{purpose}; 0 picks a free port", _port, str(default)
    )


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            "host",
            "ADDRESS",
            "an address, or a name",
            "listening address; :: for all addresses of this machine, 0.0.0.0 for all IPv4 addresses",
            _text,
            "localhost",
        ),
        _port_of("port", "port for AMQP", 5672),
        _port_of("http_port", "port for the management API", 15672),
        _port_of("tls_port", "port for AMQP with TLS, if there is a certificate", 5671),
        _port_of("https_port", "port for the management API with TLS, if there is a certificate", 15671),
        Setting("tls_cert", "FILE", "a file", "certificate of the broker, with the chain to its authority", _path),
        Setting(
            "tls_key", "FILE", "a file", "key of the certificate, unless the certificate's file has the key", _path
        ),
        Setting("tls_ca", "FILE", "a file", "certificates of the authorities trusted for clients", _path),
        _choice(
            "tls_client", "certificates of clients: not used, optional or required", "none", "optional", "required"
        ),
        Setting(
            "tls_processes",
            "NUMBER",
            "a number up to 64",
            "processes that do TLS for AMQP; 0: the broker's own process",
            _number(0, 64),
            "0",
        ),
        _choice(
            "tls_login_from",
            "part of a client's certificate used as the user name",
            *("distinguished_name", "common_name", "subject_alternative_name"),
        ),
        Setting(
            "proxy_protocol_from",
            "ADDRESSES",
            "addresses or networks with commas between",
            "balancers that begin AMQP connections with a PROXY header: 10.0.0.0/8,::1",
            _networks,
        ),
        Setting(
            "data_dir", "DIR", "a directory", "directory for definitions and messages", _path, "~/.local/share/jumpmq"
        ),
        Setting(
            "workers",
            "NUMBER|auto",
            "a number from 1 to 64, or auto",
            "processes of the broker, each with a part of the queues; auto: one per processor",
            _workers,
            "1",
        ),
        _choice(
            "queue_leader_locator",
            "home of a new queue without its own locator: the client's home, or the home with fewest queues",
            *("client-local", "balanced"),
        ),
        Setting("node", "NAME", "a name", "name of this node", _text, "jumpmq@HOST"),
        Setting("cluster", "NAME", "a name", "name of this node's cluster; a new cluster if none exists", _text),
        Setting(
            "etcd",
            "URL,URL",
            "URLs",
            "members of the etcd with the cluster's definitions, with commas; http://USER:PASSWORD@HOST:2379",
            _text,
            secret=True,
        ),
        Setting("etcd_ca", "FILE", "a file", "certificates of the authorities trusted for etcd", _path),
        Setting("etcd_cert", "FILE", "a file", "certificate presented to etcd by this node", _path),
        Setting(
            "etcd_key",
            "FILE",
            "a file",
            "key of the certificate for etcd, unless the certificate's file has the key",
            _path,
        ),
        Setting(
            "cluster_secret_file",
            "FILE",
            "a file",
            "secret shared by all nodes; seals the cluster's data in etcd",
            _path,
        ),
        Setting(
            "cluster_host",
            "ADDRESS",
            "an address, or a name",
            "address of this node for other nodes of the cluster",
            _text,
            "127.0.0.1",
        ),
        Setting(
            "cluster_port",
            "PORT",
            f"a number up to {LAST_PORT}",
            "port of the first worker for other nodes; further workers have the next ports; 0 picks free ports",
            _number(0, LAST_PORT),
            "0",
        ),
        Setting(
            "copies",
            "NUMBER",
            "a number from 1 to 7",
            "number of nodes with a copy of this node's messages; set_copies overrides the setting",
            _number(1, 7),
            "1",
        ),
        Setting(
            "rack", "NAME", "a name", "rack or zone of this node; copies go to nodes of different racks first", _text
        ),
        Setting(
            "replace_after",
            "SECONDS",
            f"seconds up to {1 << 31}",
            "absence of a node after which another node gets its copies; 0 for never",
            _number(0, 1 << 31),
            "600",
        ),
        Setting(
            "return_after",
            "SECONDS",
            "seconds up to 3600",
            "time without failures after which a home served here returns to its own node",
            _number(0, 3600),
            "30",
        ),
        Setting(
            "failover_after",
            "SECONDS",
            "seconds from 3 to 60",
            "silence of a home's node after which this node, with a copy, takes over the home",
            _number(3, 60),
            "3",
        ),
        Setting(
            "recover_cluster",
            "true|false",
            "true or false",
            "after etcd has lost the cluster, restore the cluster from this node's definitions",
            _switch,
            "false",
        ),
        Setting(
            "recover_without",
            "NODES",
            "names with commas between",
            "for recover-cluster: lost nodes, disks included, whose copies are not awaited",
            _text,
        ),
        Setting(
            "rejoin_cluster",
            "true|false",
            "true or false",
            "after a recovery of the cluster from a node with older definitions, bring in this node's queues",
            _switch,
            "false",
        ),
        Setting(
            "accept_older_data",
            "true|false",
            "true or false",
            "accept an older copy of this node's data directory, and record the missing data as a loss",
            _switch,
            "false",
        ),
        Setting(
            "load_definitions",
            "PATH",
            "a file or directory",
            "definitions imported at each start if different: a JSON file, or a directory of *.json",
            _path,
        ),
        Setting("default_user", "NAME", "a name", "administrator of a new data directory", _text, "guest"),
        Setting("default_pass", "PASSWORD", "a password", "password of the default user", _text, secret=True),
        Setting("oauth_resource", "NAME", "a name", "id of this resource server in OAuth 2 tokens", _text),
        Setting("oauth_keys", "FILE|URL", "a file or URL", "keys of tokens: a JWK set, or a public key in PEM", _text),
        Setting(
            "http_names",
            "NAMES",
            "names",
            "further host names of the page for browsers on this machine, with commas",
            _text,
        ),
        _choice("log_level", "lowest level logged on stderr", "info", "debug", "warning", "error"),
        _choice("log_format", "format of a line of the log", "text", "json"),
        Setting(
            "heartbeat",
            "SECONDS",
            "seconds up to 65535",
            "heartbeat proposed to clients; 0 for none",
            _number(0, 65535),
            "60",
        ),
        Setting(
            "frame_max",
            "OCTETS",
            "a number of octets from 4096 to 131072",
            "maximum size of a frame",
            _number(4096, 131072),
            "131072",
        ),
        Setting(
            "channel_max",
            "NUMBER",
            "a number from 1 to 65535",
            "maximum number of channels of a connection",
            _number(1, 65535),
            "2047",
        ),
        Setting(
            "consumer_max_per_channel",
            "NUMBER",
            "a number of consumers",
            "maximum number of consumers of a channel",
            _number(1, 1 << 31),
        ),
        Setting(
            "consumer_group_member_max",
            "NUMBER",
            "a number from 1 to 65535",
            "maximum number of members of a consumer group",
            _number(1, 65535),
            "1024",
        ),
        Setting(
            "consumer_group_max_per_user",
            "NUMBER",
            "a number of consumer groups",
            "maximum number of consumer groups with members of one user, at each worker or node",
            _number(1, 1 << 31),
            "1024",
        ),
        Setting(
            "consumer_timeout",
            "SECONDS",
            "a number of seconds",
            "time for the acknowledgement of a delivery before the channel is closed; 0 for no limit",
            _number(0, 1 << 31),
            "1800",
        ),
        Setting(
            "publish_rate",
            "NUMBER",
            "a number of messages",
            "maximum number of messages published by a connection per second; reading slows down beyond",
            _number(1, 1 << 31),
        ),
        Setting(
            "memory_limit",
            "SIZE",
            "a size or a share",
            "memory held for messages above which publishers are blocked: 2GB, or 0.4 of the machine's memory",
            _size,
            "0.4",
        ),
        Setting(
            "disk_free_limit", "SIZE", "a size", "free disk space below which publishers are blocked", _size, "50MB"
        ),
        _choice("key_sketches", "counts of different and frequent keys at hash exchanges", "on", "off"),
        Setting(
            "otlp_endpoint",
            "URL",
            "a URL",
            "OpenTelemetry collector for spans of messages with a traceparent header",
            _text,
        ),
        Setting(
            "write_backlog",
            "OCTETS",
            "a number of octets",
            "data waiting for the disk above which publishers wait, too",
            _number(1, 1 << 40),
            str(192 << 20),
        ),
    )
}


def plainly_written(arguments: Sequence[str]) -> dict[str, str] | None:
    """Parse a command line of settings and ``--config``; return None for any other command line.

    The import of a complete parser would be the longest part of a start.
    """
    keys = {f"--{setting.key}": name for name, setting in SETTINGS.items()} | {"--config": "config"}
    pairs = list(zip(arguments[::2], arguments[1::2], strict=False))
    if len(arguments) % 2 or any(key not in keys or value.startswith("-") for key, value in pairs):
        return None
    return {keys[key]: value for key, value in pairs}


def default_file() -> Path | None:
    """Return the default configuration file: the user's, or the machine's; None if neither exists."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    places = (Path(base) / "jumpmq" / "jumpmq.toml", Path("/etc/jumpmq/jumpmq.toml"))
    return next((place for place in places if place.is_file()), None)


def in_force(
    options: Mapping[str, str | None], file: Path | None, defaults: Mapping[str, Any]
) -> dict[str, SettingValue]:
    """Return the value of every setting with its source.

    Args:
        options: values of the command line by setting; None for a setting not given.
        file: the configuration file.
        defaults: default values by setting.

    Raises:
        SettingError: a value is wrong, a key is unknown, or the file cannot be read.
    """
    kept = read_file(file) if file is not None else {}
    found = {}
    for name, setting in SETTINGS.items():
        if (text := options.get(name)) is not None:
            found[name] = SettingValue(_read(setting, text, f"--{setting.key}"), f"--{setting.key}")
        elif text := os.environ.get(setting.variable):
            found[name] = SettingValue(_read(setting, text, setting.variable), setting.variable)
        elif setting.key in kept:
            found[name] = SettingValue(_read(setting, kept[setting.key], f"{setting.key} in {file}"), str(file))
        else:
            found[name] = SettingValue(defaults[name], "default")
    return found


def read_file(file: Path) -> dict[str, Any]:
    """Return the keys and values of a configuration file.

    Raises:
        SettingError: the file cannot be read, is not TOML, or has an unknown key.
    """
    try:
        kept = tomllib.loads(file.read_text())
    except OSError as error:
        raise SettingError(f"cannot read {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{file} is not TOML: {error}") from None
    keys = [setting.key for setting in SETTINGS.values()]
    for key in kept:
        if key not in keys:
            near = difflib.get_close_matches(key, keys, 1, 0)
            raise SettingError(f"{file}: there is no setting '{key}'; the nearest is '{near[0]}'")
    return kept


def _read(setting: Setting, value: Any, source: str) -> Any:
    try:
        return setting.read(value)
    except ValueError:
        given = "" if setting.secret else f", not '{value}'"
        raise SettingError(f"{source} must be {setting.words}{given}") from None
