"""Studies: a question to a method, trained with a rate of its own on each side, and answered in a card.

`protocol` is what a study asks for, `experiments/<name>/study.yaml`; `jobs` what of it MLflow has and what is missing;
`driver` trains what is missing; `answer` writes the card.
"""
