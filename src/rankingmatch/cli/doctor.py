"""`rankingmatch doctor`: what this machine has, how fast it is, and what to install."""

import json
from typing import Any

import click

from rankingmatch.cli.shared import json_option


@click.command(short_help="Show what this machine has, how fast it is, and what to install.")
@click.option("--device", metavar="STR", default="auto", help="Device to measure. [auto]")
@json_option
def doctor(device: str, as_json: bool) -> None:
    """Show the devices, threads, memory, versions and extras of this machine, how fast it trains, and what to install.

    Takes about ten seconds. Send this page along when you report a problem.
    """
    from rankingmatch.runs.doctor import examine
    from rankingmatch.runs.progress import loading_progress

    with loading_progress(quiet=as_json) as progress:
        found = examine(device, progress)
    click.echo(json.dumps(found, ensure_ascii=False) if as_json else "\n".join(page(found)))


def page(found: dict[str, Any]) -> list[str]:
    """The lines of the page."""
    system, devices = found["system"], found["devices"]
    accelerators = ", ".join(f"{gpu['name']} ({_gib(gpu['memory_gib'])})" for gpu in devices["accelerators"])
    extras = [f"{name} {'yes' if extra['installed'] else 'no'}" for name, extra in found["extras"].items()]
    missing = {name: version or "missing" for name, version in found["versions"].items()}
    return [
        f"system      {system['platform']}, Python {system['python']}",
        f"processor   {system['processor']}: {system['cores']} cores, torch uses {system['threads']} threads",
        f"memory      {_gib(system['memory_gib'])}, {_gib(system['available_memory_gib'])} free",
        f"GPUs        {accelerators or 'none'}; computing on {devices['used']}",
        f"versions    {', '.join(f'{name} {version}' for name, version in missing.items())}",
        f"extras      {', '.join(extras)}",
        "",
        *_speed_lines(found["speeds"]),
        "",
        *found["advice"],
    ]


def _speed_lines(speeds: list[dict[str, Any]]) -> list[str]:
    lines = [f"{'network':32}{'made for':18}{'trained per second':>20}{'to predict one':>18}"]
    for speed in speeds:
        name = f"{speed['network']}, {speed['images']}"
        if "problem" in speed:
            lines.append(f"{name:32}{speed['for']:18}  not measured: {speed['problem']}")
        else:
            trained, predict = speed["trained_per_second"], speed["predict_milliseconds"]
            lines.append(f"{name:32}{speed['for']:18}{f'{trained:,.0f} images':>20}{f'{predict:,.2f} ms':>18}")
    return lines


def _gib(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g} GiB"
