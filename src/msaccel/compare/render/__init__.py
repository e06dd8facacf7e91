"""Comparisons as terminal tables, Markdown, HTML, plots, JSON and CSV."""
