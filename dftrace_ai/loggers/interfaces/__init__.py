"""Interfaces to trackers, a file each; `finding` knows them by their keys."""
