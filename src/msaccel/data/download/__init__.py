"""Data sets over the network: sources, mirrors, registries, archives, installation into the cache."""
