INSERT INTO tallystick.audit_entry
    (namespace_id, actor, action, subject, subject_id, revision_seen, reason, before, after)
VALUES
    (%(namespace_id)s, %(actor)s, %(action)s, %(subject)s, %(subject_id)s, %(revision_seen)s, %(reason)s,
     %(before)s, %(after)s)
