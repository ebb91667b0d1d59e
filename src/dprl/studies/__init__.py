"""Experiments: settings as data, rows, a table and a figure each.

`harness` runs and resumes them, `paper` has those of the paper and our own on known problems, `icu`
the hypotension study with its simulator and preparation of MIMIC tables, `atari` the games.
"""
