"""The command `pliant`, also as `python -m pliant`: where a package is missing it names it, and the extra that brings it."""

from __future__ import annotations

import sys

TRAINING = ("demo", "train", "profile", "rebuild", "schedule", "bench")
"""Commands for which the extra `serve` of pyproject.toml is not enough."""


def main() -> int:
    """Run the command line and return its exit status: 2 where a package is missing that the command imports."""
    try:
        from pliant.cli.main import main as run

        return run()
    except ModuleNotFoundError as error:
        name, brought = (error.name or "").partition(".")[0], "pliant"
        if error.name == "pliant.cli":
            name = "the command line"
        elif name in ("", "pliant"):  # no missing package, but a fault of ours
            raise
        elif len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
            brought = "'pliant[all]'" if sys.argv[1] in TRAINING else "'pliant[serve]'"
        sys.stderr.write(f"pliant: {name} is not installed, which this needs: `pip install {brought}` brings it\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
