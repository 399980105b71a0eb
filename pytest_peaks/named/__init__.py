"""Sessions of the Playwright command line that have a name: the rules for names, and what a project sets."""
