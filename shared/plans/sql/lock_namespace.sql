-- Changes to policies and plans of one namespace happen one after the other.
SELECT * FROM tallystick.namespace WHERE name = %(name)s FOR UPDATE
