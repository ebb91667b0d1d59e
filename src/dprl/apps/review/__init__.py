"""Reviewing a policy's changes: verdicts that are never lost, a page, and what was approved."""
