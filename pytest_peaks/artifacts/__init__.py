"""Traces, pictures and videos of tests."""
