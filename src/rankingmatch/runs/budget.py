"""The longest training that fits into a given time, measured on this machine."""

from collections.abc import Callable, Mapping
from typing import Any

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.runs.config import Plan
from rankingmatch.runs.estimate import measure, seconds_per_view

__all__ = ["plan_within"]

STARTING = 10.0  # seconds: reading files, and the report
EVALUATIONS = 20  # of a run, unless their interval is given
BANK_SHARE = 0.4  # of the time, at most, for precomputed views
FEWEST_STEPS = 40  # of fine-tuning; rather than fewer, images are made smaller
SMALL_SIDE = 128  # pixels
LONGEST = 4  # times the usual steps of fine-tuning: more do not lower the error


def plan_within(minutes: float, plan_with: Callable[[Mapping[str, Any]], Plan]) -> Plan:
    """The plan with as many steps as fit into this time, and fewer precomputed views or smaller images if need be.

    Parameters
    ----------
    minutes
        The time for everything, from reading the images to the report.
    plan_with
        Returns the plan with these additional settings.

    Raises
    ------
    ConfigError
        If there is not enough time for a single step.
    """
    plan = plan_with({})
    chosen, needed = _fitted(plan, 60 * minutes)
    size = plan.config.data.image_size
    if plan.config.network.pretrained and chosen["steps"] < FEWEST_STEPS and size is not None and size > SMALL_SIDE:
        smaller, needed = _fitted(plan_with({"image_size": SMALL_SIDE}), 60 * minutes)
        chosen = {**smaller, "image_size": SMALL_SIDE}
    if chosen["steps"] < 1:
        raise ConfigError(
            f"{setting('minutes')} is {minutes:g}, but a single step, with everything before it, takes "
            f"{needed / 60:.2g}; give more time, or a smaller {setting('network')}"
        )
    return plan_with(chosen)


def _fitted(plan: Plan, seconds: float) -> tuple[dict[str, Any], float]:
    """The number of steps, and of precomputed views, for this time; and the seconds that a single step needs."""
    config = plan.config
    step, evaluation = measure(plan)
    view = seconds_per_view(plan)
    most = seconds - STARTING - _fitting_heads(plan, step)
    if config.training.evaluate_every is None:
        most -= EVALUATIONS * evaluation
    else:
        step += evaluation / config.training.evaluate_every
    views = config.views.bank_views if not view else max(1, min(config.views.bank_views, int(BANK_SHARE * most / view)))
    steps = int((most - views * view) / step)
    if config.network.pretrained:
        steps = min(steps, LONGEST * config.training.total_steps)
    return {"steps": steps, "bank_views": views}, seconds - most + view + step


def _fitting_heads(plan: Plan, step: float) -> float:
    """Seconds to fit the head before and after training, given those of a step: a pass without gradients for each."""
    from rankingmatch.heads.fitting import MOST_IMAGES  # scikit-learn takes a second to import

    config = plan.config
    fits = (config.network.initial_head == "fitted") + (config.training.final_head == "fitted")
    images = min(plan.source.training or 0, MOST_IMAGES)
    # With gradients, a step passes labeled images and two views of unlabeled ones: three times as much for an image.
    return fits * images * step / (3 * config.training.batch_size * (1 + 2 * config.training.mu))
