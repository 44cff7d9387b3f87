"""Options that several commands have."""

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON lines for programs.")
best_option = click.option(
    "--best", is_flag=True, help="Use the weights with the lowest validation error instead of the last ones."
)
device_option = click.option("--device", metavar="STR", help="Device to compute on; by default the one of the run.")
