"""The command ``balancesim``."""

import sys


def main() -> None:
    """Run the command line and leave with its exit status."""
    from balancesim.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
