"""Published profile formats -> canonical tables: ``python -m balancesim.profile_formats --help``.

Each format is a module with the functions it can serve: ``dense``, ``decode``, ``prefill``, ``head``. They take a file
and a `Shape` and return measured points in seconds, unsmoothed; `canonical` puts them on the grid of a table.
"""
