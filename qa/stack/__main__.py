"""`python -m qa.stack [--test] [PART...]`: run the stack for people to look at, or test it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pliant.errors import PliantError


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 all well, 1 a target is missed or something failed, 3 nothing was measured."""
    parser = argparse.ArgumentParser(prog="python -m qa.stack", description=__doc__)
    parser.add_argument("--test", action="store_true", help="test the stack, print the targets, and end")
    parser.add_argument("parts", nargs="*", metavar="PART", help="of the test, such as whole (default: all)")
    options = parser.parse_args(arguments)
    if options.parts and not options.test:
        parser.error("parts are those of --test")
    try:
        if options.test:
            from qa.stack.bench import bench

            return bench(options.parts)
        from qa.stack.look import look

        return look()
    except PliantError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
