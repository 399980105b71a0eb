"""Hosted sessions: a supervisor owns the browser, terminals and agents come and go."""
