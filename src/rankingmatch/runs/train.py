"""Training a run from a name or folder to its result, as the command line and Python do it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rankingmatch.core.distributed import from_first_process, is_first, process_group, restarted_by_torchrun
from rankingmatch.core.errors import ConfigError, setting, unknown_name
from rankingmatch.core.imports import trust as trust_names
from rankingmatch.data import Progress, is_place, no_progress
from rankingmatch.runs.budget import plan_within
from rankingmatch.runs.config import (
    Config,
    Plan,
    absolute_paths,
    options_of_kind,
    plan_of,
    require_exclusive,
    resolve,
)
from rankingmatch.runs.directory import Run
from rankingmatch.runs.display import choose_display
from rankingmatch.runs.job import Display, Job, start, train_job
from rankingmatch.runs.report import write_job_report, write_missing_report
from rankingmatch.training.banks import Computer, computed_here

__all__ = ["Request", "find_bank_computer", "prepare", "train", "train_run"]


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
    request = Request(str(data), method, None if out is None else Path(out), resume, minutes, settings, trust)
    computer = find_bank_computer(bank_on, ray_address)
    with process_group():
        run, plan = prepare(request)
        if from_first_process(lambda: not run.is_finished()):
            train_run(run, plan, choose_display(quiet=not verbose), report=report, bank_computer=computer)
        elif report and is_first():
            write_missing_report(run)
    return run


def find_bank_computer(on: str, ray_address: str | None) -> Computer:
    """How to compute a bank: "here", or on "ray"; raises ConfigError if that is impossible."""
    if on not in ("here", "ray"):
        raise unknown_name(f"value for {setting('bank_on')}", on, ("here", "ray"))
    if on == "ray":
        from rankingmatch.runs.ray import banks_on_ray, import_ray

        import_ray("bank_on")
        return partial(banks_on_ray, ray_address)
    if ray_address is not None:
        raise ConfigError(f"{setting('ray_address')} needs {setting('bank_on')} ray")
    return computed_here


@dataclass(frozen=True)
class Request:
    """What a user asks to train; None where nothing is given."""

    data: str | None = None
    method: str | None = None
    out: Path | None = None
    resume: bool = False
    minutes: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    trust: bool = False


def prepare(request: Request) -> tuple[Run, Plan]:
    """The run to train and its plan; nothing is written yet. A folder is scanned once by each process."""
    if restarted_by_torchrun():
        request = replace(request, resume=True)
    plans: list[Plan] = []

    def find() -> tuple[Run, Config]:
        run, plan = _find_run(request)
        plans.append(plan)
        return run, plan.config

    run, config = from_first_process(find)
    given = not request.resume or "data_dir" in request.settings
    return run, plans[0] if plans else plan_of(config, data_dir_given=given)


def train_run(
    run: Run,
    plan: Plan,
    display: Display | None = None,
    *,
    report: bool = True,
    progress: Progress = no_progress,
    before: Callable[[Job], None] = lambda job: None,
    bank_computer: Computer = computed_here,
) -> None:
    """Train a run to its end and write its report; `before` is called when everything is ready to start."""
    job = start(run, plan, progress, bank_computer)
    before(job)
    try:
        train_job(job, display if is_first() else None)
    finally:
        if report and is_first() and job.result is not None:
            write_job_report(job, progress)


def _find_run(request: Request) -> tuple[Run, Plan]:
    """The run directory and the plan of a request."""
    data, out, resume = request.data, request.out, request.resume
    trust_names([request.method, request.settings.get("network")])
    if resume and out is not None and (Run(out).exists() or data is None):
        run = Run(out, trust=request.trust)
        return run, plan_of(_resumed_config(run.config(), request), data_dir_given="data_dir" in request.settings)
    if data is None:
        missing = "a run directory" if resume else "a dataset or a folder of images"
        name = "out" if resume else "data"
        raise ConfigError(f"{setting(name)} is missing: give {missing}")
    given = request.settings
    if given.get("split") is not None:
        for name in ("labels", "validation", "imbalance", "unlabeled_imbalance"):
            if name in given:
                raise ConfigError(f"{setting('split')} determines {setting(name)}; give one of them")
    plan = _planned(data, request)
    if out is None:
        out = _default_directory(plan)
        if resume and Run(out).exists():
            return _find_run(replace(request, out=out))
    Run(out).require_empty()
    return Run(out), plan


def _planned(data: str, request: Request) -> Plan:
    """The plan of a new run; if its time is given, with as many steps as fit into it."""
    minutes, given = request.minutes, request.settings
    require_exclusive({**given, "minutes": minutes}, "minutes", "epochs", "steps")
    if minutes is not None and not 0.001 < minutes < 1e6:
        raise ConfigError(f"{setting('minutes')} is {minutes:g}; it must be in (0.001, 1000000)")
    plan = resolve(data, request.method, given)
    if minutes is None:
        return plan
    return plan_within(minutes, lambda chosen: resolve(data, request.method, {**given, **chosen}, plan.source))


def _default_directory(plan: Plan) -> Path:
    config = plan.config
    labels, name = config.data.labels or "all", Path(config.dataset).name
    return Path("runs") / f"{name}-{labels}-{config.method.replace(':', '.')}-{config.training.seed}"


def _resumed_config(config: Config, request: Request) -> Config:
    """The configuration of a resumed run: only where and how it is computed may change."""
    if request.minutes is not None:
        raise ConfigError(f"{setting('minutes')} is for a new run; remove it, and the run resumes as it was planned")
    given = absolute_paths(request.settings)
    data = request.data
    if data is not None and is_place(data) and data != config.dataset:
        data = str(Path(data).resolve())
    if given.get("precision") == "auto":  # decided when the run began, and kept
        del given["precision"]
    execution = {name: given.pop(name) for name in options_of_kind("execution", "run") if name in given}
    known = {**config.settings(), "data": config.dataset, "method": config.method}
    for name, value in {**given, "data": data, "method": request.method}.items():
        if value is not None and known.get(name) != value:
            raise ConfigError(
                f"{setting(name)} is {value}, but the run was started with {known.get(name)}; remove it, or start "
                f"another run with {setting('out')}"
            )
    config = replace(config, execution=replace(config.execution, **execution))
    config.check()
    return config
