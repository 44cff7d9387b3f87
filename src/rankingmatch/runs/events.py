"""Lines of JSON for programs."""

import json

from rankingmatch.core.untrusted import FORMATS

__all__ = ["print_event"]


def print_event(event: str, values: dict[str, object]) -> None:
    """Print a JSON object for programs."""
    print(json.dumps({"event": event, "format": FORMATS["metrics"], **values}), flush=True)
