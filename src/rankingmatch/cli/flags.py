"""Declared options as command-line flags. Methods, which import torch, are imported when a command needs its flags."""

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import click

from rankingmatch.core.options import Option, flag, options_of


class Flag(click.Option):
    """A click option with the title under which the help shows it."""

    def __init__(self, option: Option, title: str, methods: Mapping[str, Option] | None = None) -> None:
        self.title = title
        switch, choices = option.type is bool, click.Choice(option.choices) if option.choices else None
        super().__init__(
            [f"{option.flag}/--no-{option.flag[2:]}" if switch else option.flag],
            type=None if switch else choices or option.type,
            default=None,
            help=_help(option, methods or {}),
            metavar=None if switch or choices else "PATH" if option.path else option.type.__name__.upper(),
        )


def _help(option: Option, methods: Mapping[str, Option]) -> str:
    """The help of an option, in which {other} is a flag; and its default, range and methods."""
    facts = []
    if option.default is not None:
        others: dict[str, list[str]] = {}
        for name, theirs in methods.items():
            if theirs.default != option.default:
                others.setdefault(_text(theirs.default), []).append(name)
        special = (f"{value} for {', '.join(_short(names))}" for value, names in others.items())
        facts.append(", ".join([f"default {_text(option.default)}", *special]))
    if option.interval.endswith(", inf)"):
        low = option.interval[1:].removesuffix(", inf)")
        facts.append(f"at least {low}" if option.interval[0] == "[" else f"above {low}")
    elif option.interval:
        facts.append(f"in {option.interval}")
    if methods:
        facts.append(f"for {', '.join(_short(methods))}")
    help = re.sub(r"\{(\w+)\}", lambda name: flag(name[1]), option.help)
    return help + (f" [{'; '.join(facts)}]" if facts else "")


def _text(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def setting_flags() -> list[Flag]:
    """The flags of all settings."""
    from rankingmatch.runs.config import SECTIONS

    return [Flag(option, name.capitalize()) for name, settings in SECTIONS.items() for option in options_of(settings)]


def method_flags(names: Iterable[str]) -> list[Flag]:
    """The hyperparameters of these methods, each name once."""
    from rankingmatch.methods import hyperparameters_of

    used: dict[str, dict[str, Option]] = {}
    for name in names:
        for option in hyperparameters_of(name):
            used.setdefault(option.name, {})[name] = option
    return [Flag(next(iter(methods.values())), "Method", methods) for methods in used.values()]


def _short(names: Iterable[str]) -> list[str]:
    """Names grouped by their first part: rankingmatch-bm, rankingmatch-ct → rankingmatch-bm/ct."""
    families: dict[str, list[str]] = {}
    for name in names:
        family, _, variant = name.partition("-")
        families.setdefault(family, []).append(variant)
    return [f"{family}-{'/'.join(variants)}" if any(variants) else family for family, variants in families.items()]


class SettingsCommand(click.Command):
    """A command with every declared option; they are collected only when it runs or shows its help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Find the method. Its flags are enough, unless there are others, or they are to be shown."""
        from rankingmatch.runs.config import DEFAULT_METHOD
        from rankingmatch.runs.photographs import FINE_TUNING_METHOD

        ctx.meta["methods"] = [DEFAULT_METHOD, FINE_TUNING_METHOD]
        for argument, following in pairwise([*args, ""]):
            if argument == "--method":
                ctx.meta["methods"] = [following]
            elif argument.startswith("--method="):
                ctx.meta["methods"] = [argument.partition("=")[2]]
        try:
            return super().parse_args(ctx, [*args])
        except click.NoSuchOption:
            self._add_all_methods(ctx)
            return super().parse_args(ctx, args)

    def _add_all_methods(self, ctx: click.Context) -> None:
        from rankingmatch.methods import METHODS

        own = [name for name in ctx.meta.get("methods", ()) if ":" in name]  # its help comes first
        ctx.meta["flags"] = [*setting_flags(), *method_flags([*own, *METHODS])]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own parameters and the declared options."""
        if "flags" not in ctx.meta and "methods" in ctx.meta and not ctx.resilient_parsing:
            ctx.meta["flags"] = [*setting_flags(), *method_flags(ctx.meta["methods"])]
        elif "flags" not in ctx.meta:
            self._add_all_methods(ctx)
        return [*super().get_params(ctx), *ctx.meta["flags"]]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under the titles of their sections."""
        self._add_all_methods(ctx)
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "title", "Options"), []).append(row)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)
