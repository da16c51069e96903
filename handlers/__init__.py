"""What starts the program: parse, call, shape the answer."""
