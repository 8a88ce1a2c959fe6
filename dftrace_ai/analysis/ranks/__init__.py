"""Which of many ranks is late, why, and what it costs; and how fast a run would be without it."""
