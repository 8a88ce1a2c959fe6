"""Collectives of real ranks."""
