"""Experiments. Settings (plain data) come in; rows, a table and a figure go out for each.

`harness` runs and resumes experiments. `paper` has those of the paper and our own on known
problems, `icu` is the hypotension study with its simulator and the preparation of MIMIC tables, and
`atari` is the study of Atari games.
"""
