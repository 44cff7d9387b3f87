"""`python -m rankingmatch`, and the console script."""

from rankingmatch.core.safe_path import forget_current_directory

__all__ = ["main"]


def main() -> None:
    """Run the command line; nothing in the current directory is imported unless the user names it."""
    forget_current_directory()
    from rankingmatch.cli import main as run  # after that: packages are imported here

    run()


if __name__ == "__main__":
    main()
