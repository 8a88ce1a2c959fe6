"""What makes a step slow, a rule for each finding: by shares, phases, patterns and counters.

A new one has its name in `Kind` of `why/model.py`, with limits and figures, a call in
`judging.py`, and a row of sentences in `sentences.py`.
"""
