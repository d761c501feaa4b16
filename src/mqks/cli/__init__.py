"""The commands: thin mains that read arguments, start the log and call the package that does the work."""
