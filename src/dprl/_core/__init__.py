"""The foundation of all other packages; users import nothing from it.

Compiled kernels and exact sums, checks of parameters, tables for people, linear systems, files on
disk, memory, optional packages, pages and figures. Numbers, arrays and text come in and go out: no
module here knows what a log or a policy is.
"""

__version__ = "0.2.0"
