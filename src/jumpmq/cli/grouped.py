"""A command with grouped verbs: the help has a line per verb, and an error on an unknown verb suggests a verb."""

from __future__ import annotations

import difflib
from typing import Any, ClassVar

from typer.core import TyperGroup

from jumpmq.cli.absent import REASONS
from jumpmq.cli.errors import UsageError


class GroupedVerbs(TyperGroup):
    """A command with many verbs.

    Attributes:
        titles: title of each verb's group, in the order of the help.
    """

    titles: ClassVar[dict[str, str]] = {}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs with their summaries; no line is cut."""
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
            UsageError: the verb does not exist. The text gives the reason for a missing verb of RabbitMQ, or suggests
                the most similar verb.
        """
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            if name in REASONS:
                raise UsageError(f"jumpmqctl has no '{name}': {REASONS[name]}.")
            near = difflib.get_close_matches(name, self.list_commands(ctx), 1)
            meant = f" Did you mean '{near[0]}'?" if near else ""
            raise UsageError(f"Command '{name}' not found.{meant}")
        return super().resolve_command(ctx, args)
