"""The servers that are measured, one small file each: how to start it, and its protocol as bytes."""
