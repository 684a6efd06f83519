"""A command with grouped verbs, a line per verb in the help, that suggests a verb for an unknown one."""

from __future__ import annotations

import difflib
from typing import Any, ClassVar

from typer.core import TyperGroup

from jumpmq.cli.absent import REASONS
from jumpmq.cli.errors import UsageError


class GroupedVerbs(TyperGroup):
    """A command with many verbs.

    Attributes:
        titles: the group of each verb, in order.
    """

    titles: ClassVar[dict[str, str]] = {}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs, on uncut lines."""
        groups: dict[str, list[str]] = {}
        for name in self.list_commands(ctx):
            groups.setdefault(self.titles.get(name, "Others"), []).append(name)
        width = max(len(name) for names in groups.values() for name in names)
        for title, names in groups.items():
            formatter.write(f"\n{title}:\n")
            for name in names:
                command = self.get_command(ctx, name)
                summary = (command.help or "").split("\n\n")[0] if command is not None else ""
                formatter.write(f"  {name:{width}}  {' '.join(summary.split())}\n")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the verb named on the command line.

        Raises:
            UsageError: there is none; the text says why RabbitMQ's is not there, or names the nearest.
        """
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            if name in REASONS:
                raise UsageError(f"jumpmqctl has no '{name}': {REASONS[name]}.")
            near = difflib.get_close_matches(name, self.list_commands(ctx), 1)
            meant = f" Did you mean '{near[0]}'?" if near else ""
            raise UsageError(f"Command '{name}' not found.{meant}")
        return super().resolve_command(ctx, args)
