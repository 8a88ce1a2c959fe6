"""The records of many ranks become one."""
