"""Resuming a job that was killed, interrupted or has failed: the same MLflow run goes on from its last checkpoint.

`files` are the checkpoints on disk; `keeper` says when one is due and exchanges them between ranks, in the processes
that train; `lookup` and `changes` find a run and its settings again, in the process that launches.
"""
