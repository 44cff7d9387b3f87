"""Training a run from a name or folder to its result, as the command line and Python do it."""

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rankingmatch.core.distributed import from_first_process, is_first, process_group, restarted_by_torchrun
from rankingmatch.core.errors import ConfigError, Interrupted, RunError, is_out_of_memory, setting
from rankingmatch.core.imports import trust as trust_names
from rankingmatch.core.options import absolute_path
from rankingmatch.data import is_place
from rankingmatch.runs.config import (
    Config,
    Plan,
    checked_settings,
    options_of_kind,
    plan_of,
    require_exclusive,
    resolve,
)
from rankingmatch.runs.directory import Run
from rankingmatch.runs.display import Display, choose_display
from rankingmatch.runs.job import start, stop_requests, training_records
from rankingmatch.runs.ray import banks_on_ray, require_place
from rankingmatch.runs.report import write_own_report
from rankingmatch.training.banks import Computer, computed_here


def train(
    data: str | Path,
    *,
    method: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    minutes: float | None = None,
    report: bool = True,
    verbose: bool = False,
    trust: bool = False,
    bank_on: str = "here",
    ray_address: str | None = None,
    **settings: Any,
) -> Run:
    """Train a classifier and save it, with its history and a report, in a run directory.

    Parameters
    ----------
    data
        The name of a dataset, such as "digits", or a folder of images, or shards.
    method
        The name of a method, or ``package.module:Class``; by default "rankingmatch-bm", or "softmatch" where a
        pretrained network is fine-tuned on photographs.
    out
        The run directory; ``runs/DATA-LABELS-METHOD-SEED`` by default.
    resume
        Continue the run in `out` from its last checkpoint, or start it if there is none. A finished run only gets the
        report that it lacks.
    minutes
        The time for everything, instead of a number of steps: trains for as many steps as fit into it.
    report
        Whether to write ``report.html`` at the end.
    verbose
        Whether to show the progress.
    trust
        Whether a run that is resumed may import a method or network that its files name, but that is not given here.
    bank_on
        Where the frozen part of a network is computed for the views of all images, if there is one: "here" in this
        process, or "ray" on a Ray cluster.
    ray_address
        The address of the cluster; without one, this machine becomes a cluster.
    **settings
        Any option of ``rankingmatch train``, such as ``labels=40`` or ``threshold=0.9``.

    Returns
    -------
    Run
        The run directory: `result`, `history`, `load_model` and the paths of its files.

    Raises
    ------
    RankingMatchError
        If a setting, the data or the directory cannot be used, or if training diverges.

    Examples
    --------
    >>> import rankingmatch as rm
    >>> run = rm.train("digits", labels=40, steps=1000, out="runs/digits")  # doctest: +SKIP
    >>> run.result().test_error  # doctest: +SKIP
    """
    computer = find_bank_computer(bank_on, ray_address)
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    with process_group():
        out = None if out is None else Path(out)
        run, plan = prepare(str(data), method, out, settings, resume=resume, minutes=minutes, trust=trust)
        display = choose_display(quiet=not verbose or not is_first())
        train_run(run, plan, display, report=report, bank_computer=computer, deadline=deadline)
    return run


def find_bank_computer(on: str, ray_address: str | None) -> Computer:
    """How to compute a bank: "here", or on "ray"; raises ConfigError if that is impossible."""
    require_place("bank_on", on, ray_address)
    return partial(banks_on_ray, ray_address) if on == "ray" else computed_here


def prepare(
    data: str | None,
    method: str | None = None,
    out: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    resume: bool = False,
    minutes: float | None = None,
    trust: bool = False,
) -> tuple[Run, Plan]:
    """The run to train and its plan; nothing is written yet. Arguments are those of `train`."""
    given = dict(settings or {})
    trust_names([method, given.get("network")])
    require_exclusive({**given, "minutes": minutes}, "minutes", "epochs", "steps")
    if minutes is not None and not 0.001 < minutes < 1e6:
        raise ConfigError(f"{setting('minutes')} is {minutes:g}; it must be in (0.001, 1000000)")
    if minutes is not None:
        given.setdefault("final_weights", "trained")  # who gives the time wants the network to be trained
    if restarted_by_torchrun():
        resume, minutes = True, None
    run, plan = from_first_process(lambda: _find(data, method, out, given, resume=resume, trust=trust))
    if resume and minutes is not None and run.exists():
        raise ConfigError(f"{setting('minutes')} is for a new run; remove it, and the run resumes as it was planned")
    return run, plan


def _find(
    data: str | None, method: str | None, out: Path | None, given: dict[str, Any], *, resume: bool, trust: bool
) -> tuple[Run, Plan]:
    if not (resume and out is not None and (data is None or Run(out).exists())):
        if data is None:
            missing = f"{setting('out')} with the run directory" if resume else "a dataset's name or a folder of images"
            raise ConfigError(f"give {missing}")
        for name in ("labels", "validation", "imbalance", "unlabeled_imbalance"):
            if given.get("split") is not None and name in given:
                raise ConfigError(f"{setting('split')} determines {setting(name)}; give one of them")
        plan = resolve(data, method, given)
        config = plan.config
        labels, seed = config.data.labels or "all", config.training.seed
        out = out or Path(f"runs/{Path(config.dataset).name}-{labels}-{config.method.replace(':', '.')}-{seed}")
        if not (resume and Run(out).exists()):
            Run(out).require_empty()
            return Run(out), plan
    run = Run(out, trust=trust)
    config = _resumed_config(run.config(), {**given, "data": data, "method": method})
    return run, plan_of(config, data_dir_given="data_dir" in given)


def _resumed_config(config: Config, given: Mapping[str, Any]) -> Config:
    """The configuration of a resumed run: only where and how it is computed may change."""
    given = checked_settings({name: value for name, value in given.items() if value is not None})
    if given.get("data") not in (None, config.dataset) and is_place(given["data"]):
        given["data"] = str(absolute_path("data", given["data"]))
    if given.get("precision") == "auto":  # decided when the run began, and kept
        del given["precision"]
    execution = {name: given.pop(name) for name in options_of_kind("execution", "run") if name in given}
    known = {**config.settings(), "data": config.dataset, "method": config.method}
    for name, value in given.items():
        if known.get(name) != value:
            raise ConfigError(
                f"{setting(name)} is {value}, but the run was started with {known.get(name)}; remove it, or start "
                f"another run with {setting('out')}"
            )
    return replace(config, execution=replace(config.execution, **execution)).checked()


def train_run(
    run: Run,
    plan: Plan,
    display: Display,
    *,
    report: bool = True,
    bank_computer: Computer = computed_here,
    deadline: float | None = None,
) -> None:
    """Train a run to its end and write its report; a finished run only gets the report that it lacks.

    SIGINT and SIGTERM take effect after the current step: a checkpoint is written, and Interrupted is raised.
    """
    report = report and is_first()
    if from_first_process(run.is_finished):
        if report:
            write_own_report(run, None, display.progress)
        return
    try:
        job = start(run, plan, display.progress, bank_computer, deadline)
        try:
            with stop_requests() as stopped:
                display.start(job)
                for record in training_records(job, stopped, display.progress):
                    display.update(record)
        finally:
            display.close()
            if report and job.result is not None:
                write_own_report(run, job, display.progress)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(
            f"{plan.config.device()} is out of memory; lower {setting('batch_size')} or {setting('mu')}, or use a "
            f"smaller {setting('network')}"
        ) from error
    finally:
        display.close()
    if job.stopped:
        raise Interrupted("stopped", resumable=run.path)
