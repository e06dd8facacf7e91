"""One job in processes of its own: job folder, launcher, processes, rendezvous, outcome, resume."""
