"""One job in its process: worker, builder, plan, loop, loader, evaluation, metrics, resume checkpoints."""
