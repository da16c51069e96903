"""``python -m handlers.cli``: the command where its script is not on the path."""

from handlers.cli import main

main()
