"""Freed memory is reused, without the system clearing its pages again."""

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from rankingmatch.core.devices import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
for round in range(9):
    if round == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(1 << 26, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_large_blocks_that_were_freed_cause_no_page_faults_again() -> None:
    faults = {
        policy: int(subprocess.run([sys.executable, "-c", FAULTS, policy], capture_output=True, check=True).stdout)
        for policy in ("kept", "returned")
    }
    assert faults["kept"] < 100
    assert faults["kept"] < faults["returned"]
