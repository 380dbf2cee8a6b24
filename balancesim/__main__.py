"""The command ``balancesim``."""

import gc
import sys


def main() -> None:
    """Run the command line and leave with its exit status."""
    # What imports make is no garbage: at its usual pace the collector takes a tenth of the start-up to find that out.
    gc.set_threshold(100_000, *gc.get_threshold()[1:])
    from balancesim.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
