"""What this machine has: doctor, GPUs, rank tables."""
