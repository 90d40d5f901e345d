"""The index: a database that answers faster than the journals, and holds nothing that they do not.

The folder is the truth. Before a reader asks, `Index.refresh` adds what the journals gained since the last time; one
process at a time does so, under a file lock. Points are committed together with the offset behind them, so that a
kill at any moment neither loses nor doubles a point. An index that is damaged, deleted or of another revision is
built again: this costs less than migrations would.

Points are kept in blocks of columns (`_blocks`), which Python reads in a third of the time that SQLite needs for a row
for each point.

SQLite notices most damage of its file, but no flipped bit in a value. So each packed column of points ends with a
checksum, which is verified wherever it is read. A bit that flips elsewhere may be an answer: the file is a cache, and a
checksum of all of it would be hundreds of megabytes to read at each command.

Superseded reports stay in the index: each series knows the step up to which it is visible. The profiler's groups
belong to a time, not to a step: `reports` gives them when asked for by name; `series` and `summary` leave them out.
"""

from core_sdk._home.index._index import Index
