"""Studies: does a method help if both sides have their own best learning rates? The results go into a card.

`protocol` is what `experiments/<name>/study.yaml` declares, and `protocol_file` reads it; `jobs` lists a study's jobs
and finds their runs in MLflow; `runner` trains the missing ones through `launcher_pool`, each a process of `launcher`,
at rates that `rates` chooses, and measures speeds through `speed`; `plan` says what is left; `answers` decides the
hypotheses; `results` and `plots` make tables and figures; `cards` writes these into Markdown files; `published` keeps
the runs beside them and trains some again.
"""
