"""A small shop of its own, archived before your eyes, with a tick killed in the middle."""
