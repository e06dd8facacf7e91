"""Answers from runs: what MLflow holds, side by side."""
