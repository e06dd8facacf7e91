"""What a job leaves behind: a run in MLflow, a line in the terminal."""
