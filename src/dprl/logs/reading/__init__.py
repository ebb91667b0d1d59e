"""Rows as they come: files, dataframes, arrays, and what a log is made from."""
