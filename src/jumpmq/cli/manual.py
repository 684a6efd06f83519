"""Manual pages of the commands, generated from `--help`, in the macros of man(7)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import Any

import typer
import typer.main

from jumpmq._version import __version__

FILES = {
    "jumpmq": [
        ("~/.config/jumpmq/jumpmq.toml, /etc/jumpmq/jumpmq.toml", "configuration, the first that is found"),
        ("~/.local/share/jumpmq", "definitions and messages"),
    ],
    "jumpmqctl": [],
}
SEE_ALSO = {"jumpmq": "jumpmqctl", "jumpmqctl": "jumpmq"}


def write_pages(directory: Path, apps: Iterable[typer.Typer]) -> list[Path]:
    """Write a page per command, for example `jumpmq.1`, to DIR/man1, for `man -M DIR`.

    Raises:
        OSError: the directory cannot be written.
    """
    section = directory / "man1"
    section.mkdir(parents=True, exist_ok=True)
    written = []
    for app in apps:
        command = typer.main.get_command(app)
        path = section / f"{command.name}.1"
        path.write_text("".join(f"{line}\n" for line in _page(command)))
        written.append(path)
    return written


def _page(command: Any) -> Iterator[str]:
    name = command.name
    summary = _paragraphs(command)[0]
    yield f'.TH {name.upper()} 1 "" "JumpMQ {__version__}" "User Commands"'
    yield ".SH NAME"
    yield _text(f"{name} - {summary[0].lower()}{summary[1:].rstrip('.')}")
    yield ".SH SYNOPSIS"
    yield f".B {name}"
    yield ".I COMMAND"
    yield "[options]"
    everywhere = _options_everywhere(command)
    if everywhere:
        yield ".SH OPTIONS"
        yield "Options of every command:"
        yield from _options(everywhere)
    yield ".SH COMMANDS"
    yield from _commands(command, (), {option.name for option in everywhere})
    if FILES[name]:
        yield ".SH FILES"
        for file, purpose in FILES[name]:
            yield from _item(f".I {_text(file)}", purpose)
    yield ".SH SEE ALSO"
    yield f".BR {SEE_ALSO[name]} (1)"


def _commands(group: Any, before: tuple[str, ...], told: Set[str]) -> Iterator[str]:
    """Yield a subsection per command of a group, without the options in ``told``: these have a section of their own."""
    for name, command in group.commands.items():
        words = (*before, name)
        if hasattr(command, "commands"):
            yield from _commands(command, words, told)
            continue
        arguments = [f"[{_metavar(one)}]" for one in _shown(command, "argument")]
        yield f'.SS "{_text(" ".join((*words, *arguments)))}"'
        for number, paragraph in enumerate(_paragraphs(command)):
            if number:
                yield ".PP"
            yield _text(paragraph)
        yield from _options(option for option in _shown(command, "option") if option.name not in told)


def _options_everywhere(group: Any) -> list[Any]:
    """Return the options common to all commands of a group."""
    commands = [command for command in group.commands.values() if not hasattr(command, "commands")]
    named = [{option.name for option in _shown(command, "option")} for command in commands]
    common = set.intersection(*named)
    return [option for option in _shown(commands[0], "option") if option.name in common]


def _options(options: Iterable[Any]) -> Iterator[str]:
    for option in options:
        metavar = "" if option.is_flag else f" {_metavar(option)}"
        yield from _item(f".B {_text(', '.join(option.opts) + metavar)}", option.help or "")


def _shown(command: Any, kind: str) -> list[Any]:
    found = [parameter for parameter in command.params if parameter.param_type_name == kind]
    return [parameter for parameter in found if not getattr(parameter, "hidden", False)]


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _paragraphs(command: Any) -> list[str]:
    help = inspect.cleandoc(command.help or "").split("\f")[0]
    return [" ".join(paragraph.split()) for paragraph in help.split("\n\n")]


def _item(term: str, purpose: str) -> Iterable[str]:
    return (".TP", term, _text(purpose) or "\\&")


def _text(text: str) -> str:
    """Escape text for troff: backslashes, minus signs and lines that look like requests."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped
