"""What every other package stands on and no user imports.

Compiled kernels and exact sums, checks of parameters, tables for people, linear systems, files on
disk, memory, optional packages, pages and figures. Numbers, arrays and text come in and go out:
nothing here knows what a log or a policy is.
"""
