"""What can be read from the result tables; nothing here runs the simulator."""
