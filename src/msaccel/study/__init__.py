"""Studies: does a method help if both sides have their own best learning rates? The results go into a card.

`protocol` reads `experiments/<name>/study.yaml`; `jobs` lists a study's jobs and finds their runs in MLflow; `runner`
trains the missing ones through `launcher_pool`, each a process of `launcher`, and measures speeds through `speed`;
`plan` says what is left; `answers` decides the hypotheses; `results` and `plots` make tables and figures; `cards`
writes these into Markdown files; `published` keeps the runs beside them and trains some again.
"""
