"""Answers from runs: collect → groups → baselines → fairness → statistics → verdicts → report."""
