"""Settings from the command line, the environment, a file, or defaults; `jumpmq config` prints their origin."""

import tomllib
from pathlib import Path

import pytest
from tests.cli.commands import run, serving

import jumpmq


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jumpmq.toml"


def shown(*arguments: str | Path, **environment: str) -> str:
    result = run("jumpmq", "config", *arguments, timeout=200, **environment)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_whence_each_value_is(file: Path) -> None:
    file.write_text('node = "jumpmq@file"\nheartbeat = 10\nport = 1\nlog-level = "debug"\n')
    lines = shown("--config", file, "--port", "2", JUMPMQ_PORT="3", JUMPMQ_HEARTBEAT="20").splitlines()
    assert {
        "port = 2  # --port",
        "heartbeat = 20  # JUMPMQ_HEARTBEAT",
        f'node = "jumpmq@file"  # {file}',
        'host = "localhost"  # default',
        "# tls-cert is not set",
    } <= set(lines)


def test_what_is_shown_is_a_configuration_file(file: Path) -> None:
    printed = shown("--port", "off", "--memory-limit", "2GB", "--tls-cert", "a b.pem")
    file.write_text(printed)
    again = tomllib.loads(shown("--config", file))
    assert again == tomllib.loads(printed)
    assert (again["port"], again["memory-limit"], again["tls-cert"]) == ("off", "2GB", "a b.pem")


def test_every_setting_has_a_field_and_the_default_that_help_shows() -> None:
    from dataclasses import asdict

    from jumpmq.cli.settings import SETTINGS

    fields = asdict(jumpmq.Config())
    assert set(SETTINGS) == set(fields) - {
        "home",
        "homes",
        "links",
        "worker",
        "begins",
        "timing",
    }  # several brokers on a machine use these settings, and tests the last
    for name, setting in SETTINGS.items():
        if setting.default is not None and name not in ("data_dir", "node", "memory_limit", "disk_free_limit"):
            assert setting.read(setting.default) == fields[name]


def test_the_default_place(tmp_path: Path) -> None:
    place = tmp_path / "jumpmq" / "jumpmq.toml"
    place.parent.mkdir()
    place.write_text("port = 7")
    assert f"port = 7  # {place}" in shown(XDG_CONFIG_HOME=str(tmp_path))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tls-crt = 'x'", "there is no setting 'tls-crt'; the nearest is 'tls-cert'"),
        ("port = 'amqp'", "must be a number up to 65535, or off, not 'amqp'"),
        ("port = true", "must be a number up to 65535, or off, not 'True'"),
        ("port = ", "is not TOML"),
        ("[tls]\ncert = 'x'", "there is no setting 'tls'"),
        ("log-level = 'loud'", "must be one of info, debug, warning, error, not 'loud'"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(file: Path, text: str, reason: str) -> None:
    file.write_text(text)
    result = run("jumpmq", "serve", "--config", file)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert str(file) in result.stderr
    assert reason in result.stderr


def test_a_file_that_is_not_there(file: Path) -> None:
    assert run("jumpmq", "serve", "--config", file).stderr == f"jumpmq: cannot read {file}: No such file or directory\n"


def test_a_listener_is_switched_off(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="not ready"), serving(tmp_path, "--port", "off"):
        pass  # the ready line names no AMQP port
    with jumpmq.running(port=None) as broker:
        assert broker.port == 0
        assert broker.http_port


@pytest.mark.parametrize(
    "url",
    [
        "http://root:pa#hidden@etcd:2379",
        "http://root:pa/hidden@etcd:2379",
        "http://root:pa?hidden@etcd:2379",
        "http://root:hidden@etcd:port",
        "http://root:hidden@[etcd:2379",
        "root:hidden@etcd:2379",
        "http://etcd:2379,http://root:hidden@",
    ],
)
def test_the_password_of_an_etcd_url_that_cannot_be_used_is_not_shown(url: str, tmp_path: Path) -> None:
    result = run("jumpmq", "serve", "--cluster", "c", "--etcd", url, "--port", "0", "--http-port", "off",
                 "--data-dir", tmp_path)  # fmt: skip
    assert result.returncode
    assert "is none: http://HOST:PORT or http://USER:PASSWORD@HOST:PORT is meant" in result.stderr
    assert "hidden" not in result.stdout + result.stderr


def test_secret_settings_that_are_wrong_are_not_shown(file: Path) -> None:
    for name in ("etcd", "default-pass"):
        file.write_text(f"{name} = ['hidden']\n")
        result = run("jumpmq", "config", "--config", file)
        assert result.returncode == 2
        assert f"{name} in {file} must be" in result.stderr
        assert "hidden" not in result.stderr
