"""`export_definitions` and `import_definitions`."""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from jumpmq.cli.errors import CommandError, UsageError
from jumpmq.cli.session import Session
from jumpmq.cli.terminal import echo, json_text


class DefinitionsFormat(StrEnum):
    """Formats of definitions."""

    json = "json"


FileFormat = Annotated[DefinitionsFormat, typer.Option("--format", help="format of the file")]


def export_definitions(
    session: Session,
    file: Annotated[str, typer.Argument(help="file to write; - for standard output")],
    file_format: FileFormat = DefinitionsFormat.json,
) -> None:
    """Exports users, virtual hosts, permissions, policies, exchanges, queues and bindings; no messages."""
    path = Path(file)
    if file != "-":
        session.inform(f'Exporting definitions in JSON to a file at "{file}" ...')
        if not path.parent.is_dir():
            raise UsageError(f"Bad argument: Directory {path.parent} does not exist", os.EX_DATAERR)
    text = json_text(session.api.get("definitions"))
    if file == "-":
        echo(text)
        return
    try:
        path.touch(mode=0o600)  # the file has hashes of passwords
        path.write_text(text)
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}", os.EX_CANTCREAT) from None


def import_definitions(
    session: Session,
    file: Annotated[str, typer.Argument(help="file to read; - for standard input")] = "-",
    file_format: FileFormat = DefinitionsFormat.json,
) -> None:
    """Imports definitions exported by `export_definitions` or RabbitMQ; existing objects stay."""
    path = Path(file)
    source = "standard input" if file == "-" else f'a file at "{file}"'
    if file != "-" and not path.is_file():
        raise UsageError(f"Bad argument: File {file} does not exist", os.EX_DATAERR)
    session.inform(f"Importing definitions in JSON from {source} ...")
    try:
        definitions = json.loads(sys.stdin.buffer.read() if file == "-" else path.read_bytes())
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}", os.EX_NOINPUT) from None
    except ValueError as error:
        raise CommandError(f"Failed to deserialise input (format: JSON) (error: {error})", os.EX_DATAERR) from None
    answer = session.api.post("definitions", body=definitions) or {}
    for skipped in answer.get("skipped", ()):
        echo(f"Skipped, not supported by JumpMQ: {skipped}", err=True)
    if (more := answer.get("skipped_count", 0) - len(answer.get("skipped", ()))) > 0:
        echo(f"Skipped {more} more", err=True)
    for one in answer.get("renamed", ()):
        session.inform(f"Queue '{one['from']}' in vhost '{one['vhost']}' is imported as '{one['to']}'")
    for note in answer.get("notes", ()):
        echo(f"Changed: {note}", err=True)
    session.inform("Definitions are imported.")


VERBS = (export_definitions, import_definitions)
