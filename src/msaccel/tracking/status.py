"""How a job ended, and the tag that says where its files are."""

from __future__ import annotations

FINISHED, FAILED, KILLED = "FINISHED", "FAILED", "KILLED"  # MLflow's names
REFUSED = "REFUSED"  # never started, so it has no run
JOB_FOLDER = "job_folder"  # tag of a run: HOST:PATH
