"""The command `pliant`, also as `python -m pliant`: where a package is missing it names it in a sentence."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit status: 2 where a package is missing that the command imports."""
    try:
        from pliant.cli.main import main as run

        return run()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in ("", "pliant"):  # no package is missing: a fault of ours
            raise
        sys.stderr.write(f"pliant: {name} is not installed, which this needs: install Pliant with its dependencies\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
