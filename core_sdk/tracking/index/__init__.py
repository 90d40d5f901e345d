"""The index: a database that answers faster than the journals, and holds nothing that they do not.

The folder is the truth. Before a reader asks, `Index.refresh` adds what the journals gained since the last time; one
process at a time does so, under a file lock. Points are committed together with the offset behind them, so that a
kill at any moment neither loses nor doubles a point. An index that is damaged, deleted or of another revision is
built again: this costs less than migrations would.

Points are kept in blocks of columns (`_blocks`), which Python reads in a third of the time that SQLite needs for a row
for each point.

SQLite does not notice a flipped bit in a value. So a checksum of the whole file is kept beside it (`_seal`). It is
renewed after each commit, and verified before the first answer, whenever the file has changed, and before anything is
written unless all of it was read a few seconds before. This takes 42 ms for 10^7 points in 245 MB, and a tenth of the
time of building the index. If a process is killed between a commit and its checksum, the index is built again.

Nothing plainer is as good. `PRAGMA integrity_check` misses more than half of the flipped bits, and takes 26 times as
long as the checksum of the same file. SQLite's checksums of pages (`cksumvfs`) are an extension that Python does not
bring. Checksums of rows, verified where they are read, would not notice a row that is missing, and each question would
have to read all columns and rows of which it wants a sum.

Superseded reports stay in the index: each series knows the step up to which it is visible. The profiler's groups
belong to a time, not to a step: `reports` gives them when asked for by name; `series` and `summary` leave them out.
"""

from core_sdk.tracking.index._batch import RefreshResult
from core_sdk.tracking.index._index import Index
