"""Experiments that anybody can repeat with one command.

The settings of an experiment (plain data) come in; its rows, a table and a figure go out. `harness`
runs experiments and continues those that were interrupted. `paper` holds the experiments of the
paper and our own, `icu` turns MIMIC tables into logs of treatment decisions and simulates such
tables, and `atari` plays Atari games and learns from logs of play.
"""
