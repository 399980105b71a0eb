"""pytest-playwright's fixtures on sessions of peaks."""
