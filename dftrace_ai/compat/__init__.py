"""Other libraries' interfaces, kept by the recorder: code moves by changing its imports."""
