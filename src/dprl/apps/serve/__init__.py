"""A policy over HTTP: answers, explanations, and what a machine needs to look after it."""
