"""Rules of a log, each one small function, and what they find."""
