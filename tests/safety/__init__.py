"""What a hostile trace, marker, setting, neighbour or name can do: nothing."""
