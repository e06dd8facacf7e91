"""Where ranks run: what the machine has, how it is prepared, how ranks are started."""
