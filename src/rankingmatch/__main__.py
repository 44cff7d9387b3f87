"""`python -m rankingmatch`."""

from rankingmatch.cli import main

main()
