"""Answers from runs: runs → groups → baselines → fairness → statistics → verdicts → report."""
