"""One training job, or with -m a sweep of jobs: `python run.py --help`."""

import sys

from msaccel.cli.run import main

if __name__ == "__main__":
    sys.exit(main())
