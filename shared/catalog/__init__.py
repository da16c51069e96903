"""What a database says of its own tables: names, columns, keys, and how tables belong together."""
