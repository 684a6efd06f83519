"""`jumpmqctl`'s verbs, a file a subject; the tuple `VERBS` of each lists them."""
