"""The core: what a session is, on disk and as a process. Knows nothing of pytest."""
