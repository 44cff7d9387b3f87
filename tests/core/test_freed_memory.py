"""Freed memory is reused, without the system clearing its pages again."""

import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from rankingmatch.core.devices import keep_freed_memory
def faults():
    for round in range(9):
        if round == 1:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.ones(1 << 26, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
returned = faults()
keep_freed_memory()
print(returned, faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_large_blocks_that_were_freed_cause_no_page_faults_again() -> None:
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, check=True)
    returned, kept = map(int, done.stdout.split())
    assert kept < 100
    assert kept < returned
