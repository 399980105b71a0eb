"""``peaks guard``: reads a shell command before it runs, and says whether it drives browsers as it should."""
