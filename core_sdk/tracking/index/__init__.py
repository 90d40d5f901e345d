"""The index: a database that answers faster than the journals, and holds nothing that they do not.

The folder is the truth. Whoever reads calls `Index.refresh`, which indexes what the journals gained since the last
time; one process at a time does so, under a file lock. Points and the offset behind them are committed together, so an
indexer killed at any moment neither loses nor doubles one. Damaged or deleted, the index is built again; so is one of
another revision of its schema, for which a migration would cost more than it saves.

SQLite does not notice a flipped bit in a value. So a checksum of the whole file is kept beside it (`_seal`): renewed
after each commit, verified before the first answer, before each refresh, and whenever the file has changed. That takes
42 ms for 10^7 points in 290 MB, and a tenth of the time of building the index. Checksums of pages would need a layer of
SQLite that Python does not have, those of rows would cost each write and each answer. A process that is killed between
a commit and its checksum costs a rebuild.

Superseded reports (those that a later attempt repeats, or went back behind) stay in the index: each series knows the
step up to which it is visible. The profiler's groups belong to a time, not to a step: `reports` gives them when asked
for by name; `series` and `summary` leave them out.
"""

from core_sdk.tracking.index._batch import RefreshResult
from core_sdk.tracking.index._index import Index

__all__ = ["Index", "RefreshResult"]
