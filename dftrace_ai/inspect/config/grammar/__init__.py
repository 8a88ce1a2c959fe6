"""What a config may say: its keys and their values, one by one."""
