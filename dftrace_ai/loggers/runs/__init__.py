"""Reads what the interface `local` has written: runs found, compared, asked by SQL, shown.

Works where the recorder was not built, and while the runs are being written. See
`docs/guide/runs.md`.
"""
