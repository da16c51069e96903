"""What is wrong with an installation, found by looking and changing nothing, with what mends each thing."""
