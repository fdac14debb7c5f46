"""The command, also as ``python -m migrator``."""

import signal
import sys


def main() -> int:
    """Run the command line; returns the exit code."""
    # Ctrl-C among the imports ends it without a traceback; after them it has handlers of its own.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from migrator.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
