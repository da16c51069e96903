"""All contact with the APIs of AWS."""
