"""Damaged files of every kind, and settings with values of every kind: only the project's own errors.

Few of each here; `RANKINGMATCH_FUZZED_FILES=10000`, or `make fuzz`, tries more.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fuzzing
import pytest
from fuzz_targets import TARGETS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torchrun import environment

from rankingmatch.bench.recipe import cells, parse_recipe
from rankingmatch.core.errors import ConfigError, RankingMatchError
from rankingmatch.runs.config import Config, resolve

FILES = int(os.environ.get("RANKINGMATCH_FUZZED_FILES", "60"))
QUIETLY = settings(max_examples=max(100, FILES // 20), deadline=5000, suppress_health_check=[HealthCheck.too_slow])

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["digits", "cpu"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
CONFIG = resolve("digits", "rankingmatch-bm", {"steps": 4}).config.to_json()
PLACES = [
    *((name,) for name in CONFIG),
    *((name, key) for name, part in CONFIG.items() if isinstance(part, dict) for key in part),
]


@pytest.mark.slow
def test_damaged_files_of_every_kind_give_errors_of_our_own() -> None:
    code, said = fuzzing.run(list(TARGETS), 0, FILES)
    print(said)
    assert code == 0, said
    assert said.count(f": {FILES:,} files") == len(TARGETS)


HARM = {
    "os.system('true')": "ForbiddenError: os.system",
    "open('/dev/null', 'w')": "ForbiddenError: open",
    "pickle.loads(pickle.dumps(os.system))": "ForbiddenError: pickle.find_class",
    "exec('1')": "ForbiddenError: exec",
    "bytearray(3 * 2**30)": "MemoryError",
    "time.sleep(60)": "Timeout (0:00:02)!",
}


@pytest.mark.slow
def test_the_fuzzer_would_notice(tmp_path: Path) -> None:
    program = (
        "import os, pickle, sys, time, fuzzing, fuzz_targets\n"
        "from pathlib import Path\n"
        "def target(harm):\n"
        "    def read(path, content):\n"
        "        if content != b'seed': harm()\n"
        "    return lambda place: fuzz_targets.Target([(place / 'file', b'seed')], read)\n"
        f"harms = [{', '.join(f'lambda: {harm}' for harm in HARM)}]\n"
        "kinds = {f'bad{number}': target(harm) for number, harm in enumerate(harms)}\n"
        "fuzz_targets.TARGETS.update(kinds)\n"
        "fuzzing.SECONDS = 2\n"
        f"sys.exit(fuzzing.child(list(kinds), 0, 3, Path({str(tmp_path)!r})))\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300)
    said = done.stdout + done.stderr
    assert done.returncode == 1
    for number, named in enumerate(HARM.values()):
        assert named in said
        assert number == len(HARM) - 1 or f"bad{number}: 3 files, 0 of them still readable, 3 failures" in said


@QUIETLY
@given(place=st.sampled_from(PLACES), value=VALUES)
def test_a_configuration_with_any_value_anywhere_is_used_or_refused(place: tuple[str, ...], value: Any) -> None:
    values = json.loads(json.dumps(CONFIG))
    part = values
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    with contextlib.suppress(ConfigError):
        Config.from_json(values).checked()


TOML_VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.sampled_from(["true", "nan", "inf", "-1.5", "[]", "{}", "[[1]]", '"x"', "1979-05-27", '{a = "b"}', "[40, 40]"]),
    st.text(st.characters(codec="ascii", exclude_characters='"\\', min_codepoint=32), max_size=6).map('"{}"'.format),
)
KEYS = ["title", "methods", "folds", "scale", "measure", "datasets", "datasets.digits", "datasets.digits.labels"]
KEYS += ["settings", "settings.mu", "settings.steps", "settings.split", "rows", 'rows."a"', 'rows."a".method', "paper"]


@QUIETLY
@given(st.lists(st.tuples(st.sampled_from(KEYS), TOML_VALUES), min_size=1, max_size=3, unique_by=lambda pair: pair[0]))
def test_a_recipe_with_any_value_anywhere_is_used_or_refused(lines: list[tuple[str, str]]) -> None:
    given_lines = dict(lines)
    whole = {"title": '"Mine"', "methods": '["supervised"]', "datasets.digits.labels": "[40]", "settings.steps": "4"}
    text = "\n".join(f"{key} = {value}" for key, value in {**whole, **given_lines}.items())
    with contextlib.suppress(RankingMatchError):
        cells(parse_recipe("mine", text), folds=1, scale=None, given={})
