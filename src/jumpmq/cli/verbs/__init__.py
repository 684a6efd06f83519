"""The verbs of `jumpmqctl`, a file per subject, listed in its tuple `VERBS`."""
