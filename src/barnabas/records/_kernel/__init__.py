"""The compiled part: loops over records. It knows bytes and bounds, never Kafka's policy.

| module | what it does |
|---|---|
| `walk` | read a batch header; check every record of a batch without making objects |
| `decode` | `Record` objects, one after another |
| `build` | append records to a batch, one by one or from columns |
| `collect` | records into columns: Arrow's plain buffers, filled without Arrow's headers |
| `columns` | Arrow's buffers as rows, for `build` to read from |
| `scan` | look for a batch by offset or timestamp, reading headers alone |
| `keymap`, `compact` | the newest offset of every key, and what is left of a batch without the older ones |
| `murmur2` | the hash that spreads keys over partitions |

`varint.pxd` and `cursor.pxd` hold what these share: every read of foreign bytes goes through a `Cursor`, which never
steps past its end. Loops report a failure as a position and a reason and let `fail` raise it.
"""
