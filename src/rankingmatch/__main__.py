"""`python -m rankingmatch`, and the console script."""

from rankingmatch.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
