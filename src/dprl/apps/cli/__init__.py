"""The command line: one module per command, registered where it is defined; `main` runs it."""
