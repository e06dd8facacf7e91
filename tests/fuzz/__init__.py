"""Readers under random and coverage-guided bytes (`test_fuzz.py` for minutes, `make fuzz` for hours); command lines."""
