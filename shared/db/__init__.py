"""Connections, statements, migrations, and the embedded server."""
