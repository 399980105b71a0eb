"""Saved logins."""
