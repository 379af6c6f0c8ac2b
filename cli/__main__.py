"""`python -m pliant.cli`: the command line from a checkout, installed or not."""

import os
import sys

from pliant.cli.main import main

if __name__ == "__main__":
    os.environ.setdefault("DO_NOT_TRACK", "true")
    sys.exit(main())
