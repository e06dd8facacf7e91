"""One training job, or with -m a sweep of jobs: `python run.py --help`."""

import sys

if __name__ == "__main__":
    try:
        from msaccel.cli.main import main  # takes a second or more, in which Ctrl-C may come too

        sys.exit(main())
    except KeyboardInterrupt:
        sys.stderr.write("interrupted before anything was started\n")
        sys.exit(130)
