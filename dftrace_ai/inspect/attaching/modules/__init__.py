"""How modules of each kind run while they are attached, also in compiled code."""
