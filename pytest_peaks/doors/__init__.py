"""The ways to drive a session."""
