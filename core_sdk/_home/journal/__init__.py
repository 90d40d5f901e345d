"""The append-only record file of one attempt.

A journal has one writer, the attempt's process. Each record is one line, appended with one `os.write`:

    1f0a9c3e {"type":"report","time":1700000000.0,"group":"training",…}\\n

eight hexadecimal digits of the CRC-32C of the JSON that follows the space. A write that returned is in the kernel, so
it survives any death of the process; a background fsync, at most one second later, lets it survive a power cut.

Why lines of JSON: they can be read, copied, cut and mended with every tool there is, and outlive this project. Why no
queue: a queue is exactly what a `kill -9` loses.
"""

from core_sdk._home.journal._finder import find_records
from core_sdk._home.journal._heard_journal import HeardJournal
from core_sdk._home.journal._journal import Journal
from core_sdk._home.journal._line import decode_line, encode_line, encode_lines
from core_sdk._home.journal._rank_journal import RankJournal
from core_sdk._home.journal._reader import Chunk, read_journal, read_records
from core_sdk._home.journal._writer import JournalWriter
from core_sdk._home.journal._writers_journal import WritersJournal
