"""Pictures, clips and meshes as the bytes of files."""
