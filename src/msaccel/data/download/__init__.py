"""Downloads of data sets: from mirrors, archives and package registries into the cache."""
