"""A policy over HTTP: answers, explanations, health and metrics."""
