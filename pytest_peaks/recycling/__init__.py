"""Contexts that are used again: blanked after a test, and proved blank, or thrown away."""
